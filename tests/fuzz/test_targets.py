"""Each target of the fuzzer for a few seconds; `make fuzz` goes on for longer."""

import subprocess
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from random import Random

import pytest

from tests.fuzz.__main__ import TARGETS, command

SECONDS = 3
INPUTS = 300


def judge(target: str) -> Callable[[bytes], None]:
    """What a target does with one input."""
    one: Callable[[bytes], None] = import_module(f"tests.fuzz.targets.{target}").one
    return one


@pytest.mark.parametrize("target", TARGETS)
def test_a_target_stands_drawn_inputs(target: str) -> None:
    one, random = judge(target), Random(target)

    for _ in range(INPUTS):
        one(random.randbytes(random.randrange(80)))


@pytest.mark.skipif(not find_spec("atheris"), reason="atheris has no wheel for this machine")
@pytest.mark.parametrize("target", TARGETS)
def test_a_target_stands_a_fuzzer(target: str) -> None:
    done = subprocess.run(command(target, SECONDS), capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr[-3_000:]
