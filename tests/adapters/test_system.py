import subprocess
import sys
from uuid import UUID

import pytest

from tests.domain.stories import NOON_MS
from tests.fakes.clock import StoppedClock
from turnlog.adapters.system import SystemClock, SystemIds
from turnlog.domain.ids import IdKind


def test_the_clock_tells_milliseconds() -> None:
    year_2020_ms, year_2100_ms = 1_577_836_800_000, 4_102_444_800_000

    assert year_2020_ms < SystemClock().now_ms() < year_2100_ms


@pytest.mark.parametrize("kind", IdKind)
def test_an_id_names_its_kind_and_the_time_of_the_clock(kind: IdKind) -> None:
    made = SystemIds(StoppedClock()).new_id(kind)

    assert made.startswith(kind.value)
    uuid = UUID(made.removeprefix(kind.value))
    assert (uuid.version, uuid.int >> 80) == (7, NOON_MS)


def test_ids_of_one_millisecond_differ() -> None:
    ids = SystemIds(StoppedClock())

    assert len({ids.new_id(IdKind.RESPONSE) for _ in range(100)}) == 100


def test_seeds_differ_and_have_32_bits() -> None:
    ids = SystemIds(StoppedClock())

    seeds = {ids.new_seed() for _ in range(100)}

    assert len(seeds) > 1
    assert all(0 <= seed < 2**32 for seed in seeds)


@pytest.mark.parametrize(("wanted", "allowed"), [(150, 200), (250, 250), (350, 300)])
def test_a_process_may_have_as_many_files_open_as_the_system_allows(wanted: int, allowed: int) -> None:
    """D-38: 1,024 connections are more than many systems let a process have at first."""
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (200, 300));"
        "from turnlog.adapters.system import allow_open_files;"
        f"print(allow_open_files({wanted}), resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    )

    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert told.stdout.split() == [str(allowed)] * 2
