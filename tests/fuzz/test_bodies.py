"""Bodies built from the wire schema and spoiled: none breaks the decoder, none breaks a server."""

import asyncio
from pathlib import Path
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.bodies import raw_body
from tests.fuzz.server import fuzzed
from tests.fuzz.soak import Soak, leaks
from tests.fuzz.targets.requests import judge

REQUESTS = 1_500


@given(st.integers(0, 2**64))
@settings(max_examples=500)
def test_a_spoiled_body_is_a_command_or_a_refusal(seed: int) -> None:
    judge(raw_body(Random(seed)))


def test_some_generated_bodies_are_commands_and_some_are_not() -> None:
    """A generator of refusals only would prove little."""
    commands = sum(judge(raw_body(Random(seed))) is not None for seed in range(300))

    assert 50 < commands < 250


def test_a_server_stands_generated_requests(tmp_path: Path) -> None:
    """No 5xx, no hang, every answer can be read, and neither content nor a traceback is in the log."""
    with fuzzed(tmp_path) as server:
        soak = Soak(server.address, seed=2)
        asyncio.run(soak.send(0, REQUESTS))

    assert soak.troubles == []
    assert soak.statuses[200] > REQUESTS / 10
    assert leaks(tmp_path / "log") == []
