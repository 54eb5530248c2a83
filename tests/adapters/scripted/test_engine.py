from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from threading import Event

import pytest
from msgspec.structs import replace

from tests.fakes.engine import Outputs
from tests.waiting import SOON_S, taken
from turnlog.adapters.scripted.engine import ScriptedEngine
from turnlog.adapters.scripted.prompt import word_ids
from turnlog.adapters.scripted.script import Ending, Script, ScriptedCall, ScriptedTurn, Step
from turnlog.domain.errors import EngineError, InvalidRequestError, ShuttingDownError
from turnlog.domain.events import Sampling
from turnlog.domain.messages import Message
from turnlog.domain.ports import (
    CacheHandle,
    CallConstraint,
    Cancelled,
    Deliver,
    End,
    EngineCall,
    EngineFailed,
    EngineInfo,
    EngineOutput,
    Exhausted,
    InferenceEngine,
    JsonConstraint,
    ReasoningChunk,
    Submission,
    TextChunk,
)
from turnlog.domain.tools import Tool
from turnlog.domain.usage import Timing

A_DAY_MS = 86_400_000

STOP = Step(end=Ending(finish_reason="stop"))


@contextmanager
def playing(*turns: ScriptedTurn) -> Iterator[InferenceEngine]:
    engine = ScriptedEngine(Script(turns=turns))
    yield engine
    engine.close()


def entry(*steps: Step, match: str | None = None) -> ScriptedTurn:
    return ScriptedTurn(match=match, steps=steps)


def user(text: str) -> Message:
    return Message("user", text)


def submit(
    engine: InferenceEngine,
    *messages: Message,
    turn_id: str = "turn",
    warm: CacheHandle | None = None,
    deliver: Deliver | None = None,
) -> Outputs:
    outputs = Outputs()
    submission = Submission(
        turn_id=turn_id,
        prompt=engine.render(messages),
        sampling=Sampling(temperature=1.0, top_p=1.0, seed=0),
        output_budget_tokens=100,
        warm=warm,
    )
    engine.submit(submission, deliver or outputs.deliver)
    return outputs


def comparable(end: End) -> End:
    """Without what differs from run to run."""
    return replace(end, cache=None, timing=Timing())


# ── what is played ──


def test_pieces_are_delivered_in_order_and_the_end_adds_them_up() -> None:
    steps = (Step(reasoning="let "), Step(reasoning="me see"), Step(text="Hel"), Step(text="lo"), STOP)
    with playing(entry(*steps)) as engine:
        *chunks, end = submit(engine, user("how are you?")).all()

    assert chunks == [ReasoningChunk("let "), ReasoningChunk("me see"), TextChunk("Hel"), TextChunk("lo")]
    assert isinstance(end, End)
    assert comparable(end) == End(
        finish_reason="stop",
        text="Hello",
        thinking="let me see",
        prompt_tokens=5,
        output_tokens=4,
        cached_tokens=0,
        reasoning_tokens=2,
        unbatched=True,
    )


def test_what_an_ending_says_counts_more_than_the_steps() -> None:
    ending = Ending(
        finish_reason="tool_calls",
        text="",
        thinking=None,
        prompt_tokens=50,
        output_tokens=20,
        cached_tokens=None,
        reasoning_tokens=10,
        tool_calls=(
            ScriptedCall(name="add", arguments={"a": 1, "b": [2]}),
            ScriptedCall(name="sub", arguments="{ }", id="call_a", status="malformed"),
        ),
    )
    with playing(entry(Step(reasoning="hm"), Step(text="Hello"), Step(end=ending))) as engine:
        end = submit(engine, user("hi")).end()

    assert comparable(end) == End(
        finish_reason="tool_calls",
        text="",
        thinking=None,
        prompt_tokens=50,
        output_tokens=20,
        cached_tokens=None,
        reasoning_tokens=10,
        tool_calls=(EngineCall("add", '{"a":1,"b":[2]}'), EngineCall("sub", "{ }", "call_a", "malformed")),
        unbatched=True,
    )


def test_a_turn_without_reasoning_has_no_thinking() -> None:
    with playing(entry(STOP)) as engine:
        end = submit(engine, user("hi")).end()

    assert (end.text, end.thinking, end.output_tokens) == ("", None, 0)


def test_a_stream_without_an_end_just_stops() -> None:
    with playing(entry(Step(text="Hel"))) as engine:
        outputs = submit(engine, user("hi")).all()

    assert outputs == [TextChunk("Hel"), Exhausted()]


def test_a_raise_fails_the_turn_with_its_message() -> None:
    with playing(entry(Step(text="Hel"), Step(raise_="out of memory"))) as engine:
        outputs = submit(engine, user("hi")).all()

    assert outputs == [TextChunk("Hel"), EngineFailed("out of memory")]


def test_a_sleep_is_followed_by_the_next_step() -> None:
    with playing(entry(Step(text="Hel"), Step(sleep_ms=1), Step(text="lo"))) as engine:
        outputs = submit(engine, user("hi")).all()

    assert outputs == [TextChunk("Hel"), TextChunk("lo"), Exhausted()]


def test_an_entry_is_chosen_by_the_last_user_or_tool_text() -> None:
    story = [user("add"), Message("assistant", "sub"), Message("tool", "it is 42")]
    by_user, by_tool = entry(Step(raise_="user"), match="add"), entry(Step(raise_="tool"), match="42")
    with playing(by_user, by_tool) as engine:
        asked = submit(engine, *story[:2], turn_id="asked").all()
        answered = submit(engine, *story, turn_id="answered").all()

    assert [asked, answered] == [[EngineFailed("user")], [EngineFailed("tool")]]


def test_a_turn_that_no_entry_fits_fails_and_names_the_text() -> None:
    with playing(entry(STOP, match="weather")) as engine:
        outputs = submit(engine, user("sing")).all()

    assert outputs == [EngineFailed("no entry of the script fits the text 'sing'")]


def test_the_time_to_the_first_token_is_told_if_there_was_one() -> None:
    with playing(entry(Step(text="Hello"), STOP, match="hello"), entry(STOP)) as engine:
        told = submit(engine, user("hello"), turn_id="told").end()
        silent = submit(engine, user("hush"), turn_id="silent").end()

    assert told.timing.first_token_ms is not None
    assert told.timing.first_token_ms >= 0
    assert silent.timing == Timing()


# ── several turns ──


def test_a_sleeping_turn_does_not_hold_up_another() -> None:
    with playing(
        entry(Step(text="a"), Step(sleep_ms=A_DAY_MS), match="sleep"), entry(Step(text="b"), STOP)
    ) as engine:
        sleeper = submit(engine, user("sleep"), turn_id="sleeper")
        assert sleeper.next() == TextChunk("a")

        end = submit(engine, user("hi"), turn_id="other").end()

        assert end.text == "b"
        engine.cancel("sleeper")
        assert isinstance(sleeper.next(), Cancelled)


def test_turns_take_their_steps_in_rounds() -> None:
    all_submitted = Event()
    outputs: SimpleQueue[EngineOutput] = SimpleQueue()

    def hold_the_engine(_: EngineOutput) -> None:
        all_submitted.wait(SOON_S)

    with playing(
        entry(Step(text="a1"), Step(text="a2"), match="a"), entry(Step(text="b1"), Step(text="b2"))
    ) as engine:
        submit(engine, user("b"), turn_id="holder", deliver=hold_the_engine)
        submit(engine, user("a"), turn_id="a", deliver=outputs.put)
        submit(engine, user("b"), turn_id="b", deliver=outputs.put)
        all_submitted.set()
        heard = [taken(outputs) for _ in range(6)]

    rounds = [TextChunk("a1"), TextChunk("b1"), TextChunk("a2"), TextChunk("b2"), Exhausted(), Exhausted()]
    assert heard == rounds


def test_a_listener_that_raises_stops_neither_its_turn_nor_others(caplog: pytest.LogCaptureFixture) -> None:
    def deliver(output: EngineOutput) -> None:
        heard.deliver(output)
        raise RuntimeError("deaf")

    heard = Outputs()
    with playing(entry(Step(text="a"), STOP)) as engine:
        submit(engine, user("hi"), turn_id="deaf", deliver=deliver)
        outputs = heard.all()
        other = submit(engine, user("hi"), turn_id="other").end()

    assert [type(output) for output in outputs] == [TextChunk, End]
    assert other.text == "a"
    assert caplog.messages == ["an output of turn deaf was not taken"] * 2


def test_a_turn_was_alone_if_no_other_played_at_any_time_during_it() -> None:
    with playing(entry(Step(text="a"), Step(hang=True), match="hang"), entry(STOP)) as engine:
        hanging = submit(engine, user("hang"), turn_id="hanging")
        joined = submit(engine, user("hi"), turn_id="joined").end()
        engine.cancel("hanging")
        hanging.all()
        afterwards = submit(engine, user("hi"), turn_id="afterwards").end()

    assert [joined.unbatched, afterwards.unbatched] == [False, True]


def test_a_turn_that_another_joined_was_not_alone() -> None:
    def deliver(output: EngineOutput) -> None:
        first.deliver(output)
        joined.wait(SOON_S)

    first, joined = Outputs(), Event()
    with playing(entry(Step(text="a"), STOP)) as engine:
        submit(engine, user("hi"), turn_id="first", deliver=deliver)
        assert first.next() == TextChunk("a")
        submit(engine, user("hi"), turn_id="second")
        joined.set()
        end = first.end()

    assert end.unbatched is False


# ── cancel and close ──


@pytest.mark.parametrize("step", [Step(hang=True), Step(sleep_ms=A_DAY_MS)], ids=["hanging", "sleeping"])
def test_cancel_ends_a_turn_that_waits(step: Step) -> None:
    with playing(entry(Step(text="a"), step, STOP)) as engine:
        listener = submit(engine, user("one two"))
        assert listener.next() == TextChunk("a")

        engine.cancel("turn")

        cancelled = listener.next()
        assert isinstance(cancelled, Cancelled)
        assert cancelled.cache is not None
        prompt = engine.render([user("one two")])
        assert engine.common_prefix(cancelled.cache, prompt) == len(prompt.ids)


def test_to_cancel_an_unknown_turn_or_one_that_is_over_changes_nothing() -> None:
    with playing(entry(STOP)) as engine:
        submit(engine, user("hi"), turn_id="over").end()
        engine.cancel("over")
        engine.cancel("unknown")

        assert submit(engine, user("hi"), turn_id="over").end().finish_reason == "stop"


def test_close_cancels_what_is_running() -> None:
    engine = ScriptedEngine(Script(turns=(entry(Step(hang=True)),)))
    listeners = [submit(engine, user("hi"), turn_id=turn_id) for turn_id in ("a", "b")]

    engine.close()

    assert all(isinstance(listener.next(), Cancelled) for listener in listeners)


def test_a_closed_engine_takes_no_turns() -> None:
    engine = ScriptedEngine(Script(turns=(entry(STOP),)))
    engine.close()
    engine.close()

    with pytest.raises(ShuttingDownError):
        submit(engine, user("hi"))


# ── handles ──


def test_a_handle_spares_the_next_turn_what_this_one_read_and_wrote() -> None:
    asked, answer, more = user("how are you?"), Message("assistant", "very well"), user("good")
    with playing(entry(Step(text="very "), Step(text="well"), STOP)) as engine:
        warm = submit(engine, asked).end().cache
        assert warm is not None
        following = engine.render([asked, answer, more])

        end = submit(engine, asked, answer, more, warm=warm).end()

        read_and_written = len(engine.render([asked]).ids) + 2
        assert engine.common_prefix(warm, following) == read_and_written
        assert (end.cached_tokens, end.prompt_tokens) == (read_and_written, len(following.ids))
        assert engine.size_bytes(warm) == 4 * read_and_written


def test_a_handle_holds_as_much_memory_as_the_script_says_of_a_token() -> None:
    engine = ScriptedEngine(Script(turns=(entry(STOP),), kv_bytes_per_token=100))
    asked = user("one two three")
    try:
        handle = submit(engine, asked).end().cache

        assert handle is not None
        assert engine.size_bytes(handle) == 100 * len(engine.render([asked]).ids)
    finally:
        engine.close()


def test_a_handle_spares_only_what_the_prompts_have_in_common() -> None:
    with playing(entry(STOP)) as engine:
        warm = submit(engine, user("one two three")).end().cache
        assert warm is not None

        end = submit(engine, user("one two four"), warm=warm).end()

        assert end.cached_tokens == 3


def test_a_dropped_handle_is_not_used_again() -> None:
    with playing(entry(STOP)) as engine:
        handle = submit(engine, user("hi")).end().cache
        assert handle is not None
        engine.drop(handle)

        with pytest.raises(ValueError, match="the handle was dropped"):
            engine.drop(handle)
        with pytest.raises(ValueError, match="the handle was dropped"):
            engine.size_bytes(handle)
        with pytest.raises(ValueError, match="the handle was dropped"):
            engine.common_prefix(handle, engine.render([user("hi")]))
        with pytest.raises(ValueError, match="the handle was dropped"):
            submit(engine, user("hi"), warm=handle)


# ── from a file ──


def test_a_script_is_loaded_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    path.write_text(
        '{"concurrency": 3, "context_window": 99, "weight_bytes": 4000, "kv_bytes_per_token": 8, "turns": []}'
    )
    script = Script(concurrency=3, context_window=99, turns=())

    engine = ScriptedEngine.load(path)
    engine.close()

    assert engine.info == EngineInfo(
        model_fingerprint=script.fingerprint,
        tokenizer_fingerprint=engine.info.tokenizer_fingerprint,
        context_window_tokens=99,
        concurrency=3,
        reads_images=True,
        weight_bytes=4000,
        kv_bytes_per_token=8,
    )


def test_tools_are_part_of_a_prompt_and_the_effort_is_not() -> None:
    tool = Tool("look", "function", "look")
    with playing(entry(STOP)) as engine:
        plain, thinking = (engine.render([user("hi")], effort=effort) for effort in (None, "high"))
        offered = engine.render([user("hi")], tools=[tool, tool])

    assert (plain.ids, plain.effort, thinking.effort) == (thinking.ids, None, "high")
    assert offered.ids == word_ids("look look") + plain.ids


def test_ids_are_spelt_as_numbers() -> None:
    """They are hashes of words, and those of a prompt hold markers too."""
    with playing(entry(STOP)) as engine:
        ids = engine.render([user("hi you")]).ids

        assert engine.decode_tokens(ids) == tuple(str(id_) for id_ in ids)
        assert engine.decode_tokens(()) == ()


def test_a_guide_is_checked_and_changes_nothing() -> None:
    constraint = JsonConstraint({"type": "object"})
    with playing(entry(STOP)) as engine:
        assert engine.compile(constraint) is constraint
        with pytest.raises(InvalidRequestError, match="there is no tool to call"):
            engine.compile(CallConstraint((), many=False))


def test_a_file_that_is_no_script_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    path.write_text('{"turns": {}}')

    with pytest.raises(EngineError, match=r"script\.json: turns: Expected `array`, got `object`"):
        ScriptedEngine.load(path)
