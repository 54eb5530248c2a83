"""Known holes of libraries: too old a version is refused at start."""

from importlib.metadata import PackageNotFoundError, requires, version

import pytest

from turnlog.app.floors import FLOORS, check_floors, too_old
from turnlog.app.settings import APP_NAME, SettingsError


def installed(**versions: str):  # type: ignore[no-untyped-def]
    """An environment with these distributions, their names with `_` for `-`."""

    def version_of(name: str) -> str:
        try:
            return versions[name.replace("-", "_")]
        except KeyError:
            raise PackageNotFoundError(name) from None

    return version_of


@pytest.mark.parametrize(
    ("found", "refused"),
    [("3.1.5", True), ("3.0", True), ("2", True), ("3.1.6", False), ("3.1.6.post1", False), ("3.10", False)],
)
def test_a_version_below_its_floor_is_refused(found: str, *, refused: bool) -> None:
    """CVE-2024-56326."""
    sentences = too_old(installed(jinja2=found))

    assert [sentence.startswith(f"jinja2 is {found}") for sentence in sentences] == [True] * refused


def test_all_that_are_too_old_are_told() -> None:
    """CVE-2025-62608, CVE-2025-62609, CVE-2026-5843."""
    sentences = too_old(installed(mlx="0.29.3", mlx_lm="0.32.1rc1", litestar="2.25.0"))

    assert [sentence.split()[0] for sentence in sentences] == ["mlx", "mlx-lm"]


def test_a_library_that_is_not_there_does_no_harm() -> None:
    assert too_old(installed()) == []


def test_the_server_refuses_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FLOORS, "jinja2", ("999", "for a test"))

    with pytest.raises(SettingsError, match=r"jinja2 is .*, but must be 999 or newer: for a test"):
        check_floors()


def test_this_environment_is_new_enough() -> None:
    assert too_old() == []
    assert {name for name in FLOORS if version(name)} == set(FLOORS)


def test_what_is_declared_is_no_older_than_the_floor() -> None:
    declared = [line for line in requires(APP_NAME) or () if "extra" not in line]

    for name in ("httptools", "litestar", "uvicorn", "zstandard"):
        (line,) = (line for line in declared if line.startswith(name))
        assert f">={FLOORS[name][0].removesuffix('.0')}" in line
