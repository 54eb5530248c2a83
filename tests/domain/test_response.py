"""The commands of a response: given what has happened, when it is asked for something, then these events."""

from typing import Any

import pytest
from msgspec.structs import replace

from tests.domain.stories import (
    COMMITTED,
    CREATED,
    FAILED,
    HARD_TIMED_OUT,
    NOON_MS,
    PERSISTED,
    STARTED,
    STEERED,
    STEERS_COMMITTED,
    STEERS_FAILED,
    Given,
    start,
)
from turnlog.domain.events import (
    WIRE_VERSION,
    ContentExpired,
    ItemClosed,
    ItemExtended,
    ItemOpened,
    PersistHardTimedOut,
    ResponseDeleted,
    ResponseEvent,
    TurnCommitted,
    TurnFailed,
    TurnPersisted,
    TurnRequeued,
)
from turnlog.domain.items import FunctionCallItem, Logprob, MessageItem, ReasoningItem
from turnlog.domain.messages import Message
from turnlog.domain.ports import End, EngineCall, ReasoningChunk, TextChunk, TurnStats
from turnlog.domain.request import TurnRequest
from turnlog.domain.response import Response, fold
from turnlog.domain.usage import Timing, Usage

LATER_MS = NOON_MS + 5_000
MESSAGE = MessageItem("msg_1", "in_progress", "")
OPENED = ItemOpened(at_ms=NOON_MS, output_index=0, item=MESSAGE)
HEL = ItemExtended(at_ms=NOON_MS, item_id="msg_1", deltas=("Hel",))
REASONING = ItemOpened(at_ms=NOON_MS, output_index=1, item=ReasoningItem("rs_2", ""))
HM = ItemExtended(at_ms=NOON_MS, item_id="rs_2", deltas=("hm",))
USAGE = Usage(input_tokens=3, output_tokens=2)
# The turn was created at noon and started 10 ms later.
WAITS = Timing(queue_ms=10.0, pre_inference_ms=10.0)


def end(text: str, **fields: Any) -> End:
    """An engine's end."""
    given: dict[str, Any] = {"finish_reason": "stop", "prompt_tokens": 3, "output_tokens": 2}
    return End(text=text, **given | fields)


def test_a_request_creates_a_response_that_waits_for_its_lane() -> None:
    """R-142, R-149."""
    response = Response.create(
        TurnRequest(model="tiny", input=(Message("user", "hi"),), metadata={"a": "b"}),
        response_id="resp_1",
        at_ms=NOON_MS,
        asked_ms=NOON_MS - 5,
        owner="local",
        own_messages=(Message("user", "hi"),),
        instructions="be kind",
        sampling=CREATED.sampling,
        expires_at=CREATED.expires_at,
        instance_id=1,
        boot_id="boot",
    )

    assert response.created == replace(
        CREATED, instructions="be kind", metadata={"a": "b"}, wire_version=WIRE_VERSION
    )


def test_a_created_response_starts_once() -> None:
    assert Given(CREATED).when(start) == [STARTED]
    assert Given(CREATED, STARTED).refuses(start) == "cannot start a response that is in_progress"


def test_the_first_text_opens_a_message_and_the_next_extends_it() -> None:
    first = Given(CREATED, STARTED).when(lambda response: response.receive(TextChunk("Hel"), at_ms=NOON_MS))
    assert first == [OPENED, HEL]

    more = Given(CREATED, STARTED, OPENED, HEL).when(
        lambda response: response.receive(TextChunk("lo"), at_ms=LATER_MS)
    )
    assert more == [ItemExtended(at_ms=LATER_MS, item_id="msg_1", deltas=("lo",))]


@pytest.mark.parametrize("history", [(CREATED,), (CREATED, STARTED, COMMITTED), (CREATED, FAILED)])
def test_only_a_running_turn_receives(history: tuple[Any, ...]) -> None:
    refused = Given(*history).refuses(lambda response: response.receive(TextChunk("Hel"), at_ms=NOON_MS))

    assert refused.startswith("cannot receive a response that is")


def test_the_engines_end_closes_the_message_and_commits() -> None:
    """R-278, R-314, R-343."""
    events = Given(CREATED, STARTED, OPENED, HEL).when(
        lambda response: response.finish(end("Hello"), at_ms=LATER_MS)
    )

    assert events == [
        ItemExtended(at_ms=LATER_MS, item_id="msg_1", deltas=("lo",)),
        ItemClosed(at_ms=LATER_MS, output_index=0, item=MessageItem("msg_1", "completed", "Hello")),
        TurnCommitted(at_ms=LATER_MS, status="completed", usage=USAGE, timing=WAITS),
    ]


def test_a_call_opens_after_the_message_and_has_a_place_of_its_own() -> None:
    """R-265, R-295, D-33."""
    call = EngineCall(name="add", arguments="{}", id="call_a")

    events = Given(CREATED, STARTED, OPENED, HEL).when(
        lambda response: response.finish(end("Hel", tool_calls=(call,)), at_ms=LATER_MS)
    )

    done = FunctionCallItem("fc_1", "call_a", "add", "{}", "completed")
    assert events[1:4] == [
        ItemOpened(at_ms=LATER_MS, output_index=1, item=replace(done, arguments="", status="in_progress")),
        ItemExtended(at_ms=LATER_MS, item_id="fc_1", deltas=("{}",)),
        ItemClosed(at_ms=LATER_MS, output_index=1, item=done),
    ]


def test_an_end_with_an_error_fails_the_turn() -> None:
    """R-318, R-324."""
    events = Given(CREATED, STARTED, OPENED, HEL).when(
        lambda response: response.finish(end("Hel", finish_reason="error"), at_ms=LATER_MS)
    )

    assert events[-1] == TurnFailed(
        at_ms=LATER_MS,
        reason="finish_reason_error",
        message="the engine ended the turn with an error",
        usage=USAGE,
        timing=WAITS,
    )


def test_a_failure_closes_the_message_before_the_reasoning_and_says_why() -> None:
    """R-319."""
    events = Given(CREATED, STARTED, OPENED, HEL, REASONING, HM).when(
        lambda response: response.fail("client_abort", at_ms=LATER_MS)
    )

    assert events == [
        ItemClosed(at_ms=LATER_MS, output_index=0, item=MessageItem("msg_1", "incomplete", "Hel")),
        ItemClosed(at_ms=LATER_MS, output_index=1, item=ReasoningItem("rs_2", "hm")),
        TurnFailed(at_ms=LATER_MS, reason="client_abort", message="the client left before the turn was done"),
    ]


def test_a_failure_says_what_the_turn_has_cost_if_the_engine_knows() -> None:
    """R-323."""
    stats = TurnStats(prompt_tokens=3, output_tokens=2)

    (failed,) = Given(CREATED, STARTED).when(
        lambda response: response.fail("error", "the GPU is on fire", at_ms=LATER_MS, stats=stats)
    )

    assert failed == TurnFailed(
        at_ms=LATER_MS, reason="error", message="the GPU is on fire", usage=USAGE, timing=WAITS
    )


def test_a_turn_that_waits_fails_without_any_item() -> None:
    (failed,) = Given(CREATED).when(lambda response: response.fail("server_restart", at_ms=LATER_MS))

    assert isinstance(failed, TurnFailed)
    assert failed.message == "the server stopped before the turn was done"


def test_the_write_of_a_committed_turn_lands_late_or_in_time() -> None:
    def persist(response: Response) -> TurnPersisted:
        return response.persist(at_ms=LATER_MS, write_ms=2.5)

    persisted = TurnPersisted(at_ms=LATER_MS, write_ms=2.5)
    assert Given(CREATED, STARTED, COMMITTED).when(persist) == [persisted]
    assert Given(CREATED, STARTED, COMMITTED, HARD_TIMED_OUT).when(persist) == [persisted]


def test_a_write_times_out_once() -> None:
    def time_out(response: Response) -> PersistHardTimedOut:
        return response.hard_time_out(at_ms=LATER_MS, after_ms=60_000)

    timed_out = PersistHardTimedOut(at_ms=LATER_MS, after_ms=60_000)
    assert Given(CREATED, STARTED, COMMITTED).when(time_out) == [timed_out]
    assert (
        Given(CREATED, STARTED, COMMITTED, HARD_TIMED_OUT).refuses(time_out)
        == "cannot hard_time_out a response that is hard_timed_out"
    )


@pytest.mark.parametrize("history", [(CREATED, FAILED), (CREATED, STARTED, COMMITTED, PERSISTED)])
def test_a_response_to_which_nothing_more_happens_expires(history: tuple[Any, ...]) -> None:
    """D-14."""
    expired = Given(*history).when(lambda response: response.expire(at_ms=LATER_MS))

    assert expired == [ContentExpired(at_ms=LATER_MS)]


@pytest.mark.parametrize("history", [(CREATED,), (CREATED, STARTED), (CREATED, STARTED, COMMITTED)])
def test_a_response_whose_events_may_go_on_does_not_expire(history: tuple[Any, ...]) -> None:
    refused = Given(*history).refuses(lambda response: response.expire(at_ms=LATER_MS))

    assert refused.startswith("cannot expire a response that is")


def test_reasoning_comes_before_text() -> None:
    """R-268, R-269."""
    events = Given(CREATED, STARTED).when(
        lambda response: [
            *response.receive(ReasoningChunk("hm"), at_ms=NOON_MS),
            *response.receive(TextChunk("Hi"), at_ms=LATER_MS),
        ]
    )

    assert [type(event) for event in events] == [
        ItemOpened,
        ItemExtended,
        ItemClosed,
        ItemOpened,
        ItemExtended,
    ]


def test_the_first_text_closes_the_reasoning_even_if_it_is_held_back() -> None:
    """R-269."""
    reasoning = replace(REASONING, output_index=0)

    events = Given(CREATED, STARTED, reasoning, HM).when(
        lambda response: response.receive(TextChunk("<tool"), at_ms=LATER_MS)
    )

    assert events == [ItemClosed(at_ms=LATER_MS, output_index=0, item=ReasoningItem("rs_2", "hm"))]


def test_the_time_before_inference_counts_from_the_request() -> None:
    """R-343."""
    response = fold([CREATED])
    response.asked_ms = NOON_MS - 5
    start(response)

    ended = response.finish(end("Hi"), at_ms=LATER_MS)[-1]

    assert isinstance(ended, TurnCommitted)
    assert ended.timing == Timing(queue_ms=10.0, pre_inference_ms=15.0)


def test_log_probabilities_are_told_with_one_delta_only() -> None:
    first, second = Logprob("Hel", -1.0), Logprob("lo", -0.5)

    events = Given(CREATED, STARTED).when(
        lambda response: [
            *response.receive(TextChunk("Hel", (first,)), at_ms=NOON_MS),
            *response.receive(TextChunk("lo", (second,)), at_ms=NOON_MS),
            *response.finish(end("Hello"), at_ms=NOON_MS),
        ]
    )

    told = [event.logprobs for event in events if isinstance(event, ItemExtended)]
    assert told == [((first,),), ((second,),)]
    closed = MessageItem("msg_1", "completed", "Hello", (first, second))
    assert ItemClosed(at_ms=NOON_MS, output_index=0, item=closed) in events


def test_a_turn_that_waits_is_queued_again_by_the_next_server() -> None:
    """D-40."""
    events = Given(CREATED).when(lambda response: response.requeue(at_ms=LATER_MS, boot_id="next"))

    assert events == [TurnRequeued(at_ms=LATER_MS, boot_id="next")]
    assert Given(CREATED, *events).when(start) == start(Given(CREATED).response())
    refusal = Given(CREATED, STARTED).refuses(
        lambda response: response.requeue(at_ms=LATER_MS, boot_id="next")
    )
    assert refusal == "cannot start a response that is in_progress"


@pytest.mark.parametrize("history", [(CREATED,), (CREATED, STARTED), (CREATED, STARTED, COMMITTED)])
def test_only_what_has_settled_is_deleted(history: tuple[ResponseEvent, ...]) -> None:
    """D-40: until then more events of the turn may follow."""
    refusal = Given(*history).refuses(lambda response: response.delete(at_ms=LATER_MS, asked_by="ann"))

    assert refusal.startswith("cannot delete a response that is ")


@pytest.mark.parametrize("ending", [(COMMITTED, PERSISTED), (FAILED,)])
def test_a_deleted_response_says_who_asked_for_it(ending: tuple[ResponseEvent, ...]) -> None:
    """D-40."""
    response = Given(CREATED, STARTED, *ending).response()

    assert response.delete(at_ms=LATER_MS, asked_by="ann") == ResponseDeleted(at_ms=LATER_MS, asked_by="ann")


# ── steering (D-40) ───────────────────────────────────────────────────────────────────────────────


def test_a_steered_turn_is_committed_as_far_as_it_came() -> None:
    """D-40: what a tag buffer holds back is part of it; the item is incomplete, and so is the turn."""
    response = Given(CREATED, STARTED).response()
    response.receive(TextChunk("Hel <too"), at_ms=LATER_MS)
    response.accept_steer("steer_1", STEERED.input, at_ms=LATER_MS)

    events = response.stop(None, at_ms=LATER_MS)

    assert [type(event) for event in events] == [ItemExtended, ItemClosed, TurnCommitted]
    assert response.items == [MessageItem("msg_1", "incomplete", "Hel <too")]
    assert events[-1] == TurnCommitted(at_ms=LATER_MS, status="incomplete", reason="steered", usage=Usage())
    assert response.steers == {"steer_1": STEERED.input}


def test_input_has_a_fate_once() -> None:
    """D-40."""
    response = Given(CREATED, STARTED, STEERED, COMMITTED).response()

    committed = response.commit_steers("resp_2", at_ms=STEERS_COMMITTED.at_ms)

    assert committed == [STEERS_COMMITTED]
    assert response.fail_steers("response_not_active", at_ms=LATER_MS) == []
    assert Given(CREATED, STARTED, STEERED, FAILED).when(
        lambda other: other.fail_steers("response_not_active", at_ms=STEERS_FAILED.at_ms)
    ) == [STEERS_FAILED]


@pytest.mark.parametrize("ended", [COMMITTED, FAILED])
def test_a_turn_that_has_ended_is_not_steered(ended: TurnCommitted | TurnFailed) -> None:
    Given(CREATED, STARTED, ended).refuses(
        lambda response: response.accept_steer("steer_1", STEERED.input, at_ms=LATER_MS)
    )


def test_a_turn_that_reads_its_prompt_only_has_said_nothing() -> None:
    """D-40: whatever the engine began to say."""
    stats = TurnStats(prompt_tokens=9, output_tokens=1, cached_tokens=2, output_ids=(7,))

    (committed,) = Given(CREATED, STARTED).when(
        lambda response: response.finish_reading(stats, at_ms=LATER_MS)
    )

    assert isinstance(committed, TurnCommitted)
    assert (committed.status, committed.output_ids) == ("completed", None)
    assert committed.usage == Usage(input_tokens=9, output_tokens=0, cached_tokens=2)
