"""The process that renders and compiles: its bounds, its death, and what it costs the others."""

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import pytest

from tests.tiny_model import CHAT_TEMPLATE, make_tiny_model
from tests.waiting import SOON_S, until
from turnlog.adapters.engine_process import texts
from turnlog.adapters.engine_process.texts import TextProcess
from turnlog.adapters.owner_queue import OwnerQueue
from turnlog.domain.errors import (
    EngineError,
    InvalidRequestError,
    SchemaTooComplexError,
    ShuttingDownError,
    TemplateTimeoutError,
)
from turnlog.domain.messages import Message
from turnlog.domain.ports import JsonConstraint, Prompt

HELLO = [Message("user", "hello")]
# Never ends for a message that says so; and takes all memory for another.
HOSTILE_TEMPLATE = (
    "{% if messages[-1].content == 'loop' %}"
    "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}{% endif %}"
    # Not `'ab' * 10**10`: that would be computed where the template is compiled.
    "{% if messages[-1].content == 'eat' %}{% set x = messages[-1].content * 10**10 %}{% endif %}"
    + CHAT_TEMPLATE
)


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TextProcess]:
    """For a model whose template can be made to hang."""
    process = TextProcess(make_tiny_model(tmp_path_factory.mktemp("tiny"), HOSTILE_TEMPLATE))
    process.retain()
    yield process
    process.release()


def rendered(process: TextProcess, text: str) -> Prompt:
    """A conversation of one message."""
    return process.render([Message("user", text)], tools=(), effort=None, recorded={})


def idle(process: TextProcess) -> int:
    """The process that serves short requests, once it is ready for the next one."""
    return until(lambda: [each.process.pid for each in process._free if not each.is_spare])[0]


def test_a_template_that_does_not_end_is_ended(process: TextProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    before = rendered(process, "hello")
    old = process.pids
    monkeypatch.setattr(texts, "RENDER_LIMIT_S", 0.2)

    with pytest.raises(TemplateTimeoutError, match=r"exceeded 0\.2 s or its memory limit") as refused:
        rendered(process, "loop")

    monkeypatch.undo()
    assert refused.value.code == "template_timeout"
    assert process.pids != old
    assert rendered(process, "hello") == before


def test_a_schema_that_takes_too_long_is_refused(
    process: TextProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    rendered(process, "hello")
    os.kill(idle(process), signal.SIGSTOP)
    monkeypatch.setattr(texts, "COMPILE_LIMIT_S", 0.1)

    with pytest.raises(SchemaTooComplexError) as refused:
        process.compile(JsonConstraint({"type": "object"}))

    monkeypatch.undo()
    assert refused.value.code == "schema_too_complex"
    assert process.compile(JsonConstraint({"const": 7})).shape == "json"


def test_a_template_that_takes_all_memory_is_refused_and_the_next_one_is_rendered(
    process: TextProcess,
) -> None:
    before = rendered(process, "hello")

    with pytest.raises((InvalidRequestError, EngineError)):
        rendered(process, "eat")

    assert rendered(process, "hello") == before


def test_a_process_that_was_killed_is_started_again_and_nobody_notices(process: TextProcess) -> None:
    before = rendered(process, "hello")
    os.kill(idle(process), signal.SIGKILL)

    assert rendered(process, "hello") == before


def test_a_request_over_which_the_process_dies_twice_is_refused(
    process: TextProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    rendered(process, "hello")

    class Dying(texts._Running):
        def ask(self, *_: object) -> object:  # type: ignore[override]
            self.answers = False
            os.kill(self.process.pid, signal.SIGKILL)
            raise EOFError

    monkeypatch.setattr(texts, "_Running", Dying)
    os.kill(idle(process), signal.SIGKILL)

    with pytest.raises(TemplateTimeoutError):
        rendered(process, "hello")

    monkeypatch.undo()
    assert rendered(process, "hello").ids


@pytest.fixture
def queue() -> Iterator[OwnerQueue]:
    """Threads on which owners have their texts rendered."""
    with closing(OwnerQueue("plan", 2)) as queue:
        yield queue


def test_nobody_waits_for_the_long_text_of_another(
    process: TextProcess, queue: OwnerQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A spare process is there for them; the first ends when nobody wants its work any more."""
    monkeypatch.setattr(texts, "SPARE_AFTER_S", 0.1)
    monkeypatch.setattr(texts, "UNWANTED_S", 0.1)
    before = rendered(process, "hello")
    endless = queue.submit("ada", partial(rendered, process, "loop"))
    until(lambda: len(process._free) < len(process.pids))

    assert queue.submit("bob", partial(rendered, process, "hello")).result(SOON_S) == before

    (busy,) = set(process.pids) - {running.process.pid for running in process._free}
    endless.cancel()
    until(lambda: busy not in process.pids)
    assert queue.submit("ada", partial(rendered, process, "hello")).result(SOON_S) == before


def test_a_long_text_leaves_the_first_process_to_the_others(process: TextProcess) -> None:
    rendered(process, "a" * texts.LONG_BYTES)

    assert sorted(running.is_spare for running in process._processes) == [False, True]


def test_what_waits_for_a_process_and_is_wanted_no_more_is_given_up(
    process: TextProcess, queue: OwnerQueue
) -> None:
    rendered(process, "a" * texts.LONG_BYTES)
    until(lambda: len(process._free) == 2)
    with ExitStack() as held:
        for is_long in (False, True):
            held.enter_context(process._borrowed(is_long=is_long))
        waiting = queue.submit("ada", partial(rendered, process, "hello"))
        until(lambda: queue.threads.in_use() == 1)

        waiting.cancel()

        until(lambda: queue.threads.in_use() == 0)


def test_a_number_that_no_process_can_be_sent_is_refused(process: TextProcess) -> None:
    with pytest.raises(InvalidRequestError, match="more than 64 bits"):
        process.compile(JsonConstraint({"const": 2**70}))


def test_a_folder_without_a_template_is_refused(tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path / "tiny")
    (folder / "tokenizer_config.json").write_text("{}")
    process = TextProcess(folder)
    process.retain()

    with pytest.raises(EngineError, match="has no chat template"):
        process.wait_until_ready()

    process.release()
    with pytest.raises(ShuttingDownError):
        rendered(process, "hello")
