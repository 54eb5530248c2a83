"""What auditors and operators get to see of a real store."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.adapters.eventstore.stories import (
    COMMITTED,
    FAILED,
    PERSISTED,
    STARTED,
    Store,
    created,
    item_events,
    opened,
    recorded,
    turn,
)
from tests.domain.stories import CREATED
from turnlog.adapters.openai.audit import conversation_object, row_object, turn_object
from turnlog.adapters.system import SystemClock
from turnlog.app.audit.filters import read_filter
from turnlog.app.audit.reading import Audit
from turnlog.app.turns.live_turns import LiveTurns
from turnlog.app.turns.pending import PendingWrites
from turnlog.app.turns.retrieval import Retrieval
from turnlog.domain.errors import ForbiddenError, ResponseNotFoundError
from turnlog.domain.events import Recorded
from turnlog.domain.items import FunctionCallItem
from turnlog.domain.owners import LOCAL, Caller, Role
from turnlog.domain.redaction import withheld

AUDITOR = Caller("ada", frozenset({Role.AUDITOR}))
OPERATOR = Caller("olga", frozenset({Role.OPERATOR}))
SECRET = "geheim"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with opened(tmp_path / "turnlog.db") as store:
        yield store


@pytest.fixture
def audit(store: Store) -> Audit:
    clock = SystemClock()
    return Audit(store.reader, Retrieval(store.reader, LiveTurns(), PendingWrites(), clock), clock)


def keep(store: Store, *stories: list[Recorded]) -> None:
    for story in stories:
        store.journal.append(story).result()


def failing(response_id: str, **fields: Any) -> list[Recorded]:
    begun = replace(created(response_id, text=SECRET), **fields)
    return recorded(response_id, begun, STARTED, FAILED)


def secret_turn(response_id: str, **fields: Any) -> list[Recorded]:
    """A turn that went well, with a secret wherever one can be."""
    said = {"metadata": {SECRET: SECRET}, "instructions": SECRET, "tools": ({"name": SECRET},)}
    begun = replace(created(response_id, text=SECRET), **said | fields)
    call = FunctionCallItem(f"fc_{response_id}", "call_1", SECRET, SECRET, "completed")
    events = [replace(each, item=call) if hasattr(each, "item") else each for each in item_events("x")]
    del events[1]
    return recorded(response_id, begun, STARTED, *events, COMMITTED, PERSISTED)


async def everything_about(audit: Audit, response_id: str, caller: Caller) -> str:
    """All that the caller is told of a response, as text."""
    rows = (await audit.find(read_filter([], now_ms=0), caller)).rows
    told = turn_object(await audit.turn(response_id, caller, with_prompt_ids=True))
    head, events = await audit.events(response_id, caller)
    conversation = conversation_object(await audit.conversation(response_id, caller))
    return msgspec.json.encode([*map(row_object, rows), told, head.content, events, conversation]).decode()


async def test_operators_see_that_a_turn_went_well_and_not_what_was_said(store: Store, audit: Audit) -> None:
    """D-18: nothing that was said is in anything an operator is told of it, in no form."""
    keep(store, secret_turn("resp_a"))

    seen = await everything_about(audit, "resp_a", OPERATOR)
    turn = await audit.turn("resp_a", OPERATOR)

    assert SECRET in await everything_about(audit, "resp_a", AUDITOR)
    assert SECRET not in seen
    assert STARTED.prompt.digest not in seen  # whoever guesses a prompt could prove it by its hash
    assert (turn.content, turn.seen, turn.row.usage) == ("withheld", None, COMMITTED.usage)
    assert len(turn.events) == 6


async def test_a_comparison_takes_the_content_of_both_turns(store: Store, audit: Audit) -> None:
    keep(store, secret_turn("resp_a"), failing("resp_b"), secret_turn("resp_c", replay_of="resp_b"))

    for caller in (LOCAL, AUDITOR):
        assert (await audit.compare("resp_a", "resp_b", caller)).ids.b == "resp_b"
    assert (await audit.compare("resp_b", "resp_c", OPERATOR)).ids.b == "resp_c"
    with pytest.raises(ForbiddenError, match="'resp_a'"):
        await audit.compare("resp_b", "resp_a", OPERATOR)


async def test_what_is_not_there_is_not_found(store: Store, audit: Audit) -> None:
    keep(store, turn("resp_a"))

    for asked in (
        audit.turn("resp_x", LOCAL),
        audit.events("resp_x", LOCAL),
        audit.conversation("resp_x", LOCAL),
        audit.compare("resp_a", "resp_x", LOCAL),
    ):
        with pytest.raises(ResponseNotFoundError):
            await asked


async def test_of_an_expired_turn_it_tells_what_is_left(store: Store, audit: Audit) -> None:
    """D-14: that it happened, when, and what it cost."""
    begun = recorded("resp_b", created("resp_b", previous="resp_a", text="and?"), STARTED)
    keep(store, secret_turn("resp_a"), begun)
    while await asyncio.wrap_future(store.journal.expire(2001)):
        pass

    told = turn_object(await audit.turn("resp_a", LOCAL, with_prompt_ids=True))
    after = await audit.turn("resp_b", LOCAL)

    assert SECRET not in msgspec.json.encode(told).decode()
    assert (told["content"], told["response"], told["seen"]) == ("expired", None, None)
    assert told["prompt"] == {"tokens": 3, "sha256": None, "ids": None, "ids_problem": None}
    assert told["times"] == {
        "created": "1970-01-01T00:00:01.000Z",
        "started": "1970-01-01T00:00:01.001Z",
        "first_token": "1970-01-01T00:00:01.002Z",
        "ended": "1970-01-01T00:00:01.005Z",
        "persisted": "1970-01-01T00:00:01.006Z",
    }
    assert told["usage"]["total_tokens"] == 5
    assert after.seen
    assert (after.seen.missing, [each.content for each in after.seen.messages]) == ("resp_a", ["and?"])


async def test_a_turn_that_runs_is_told_as_far_as_it_is_stored(store: Store, audit: Audit) -> None:
    keep(store, recorded("resp_a", created("resp_a"), STARTED, *item_events("msg_a")[:2]))

    told = turn_object(await audit.turn("resp_a", LOCAL))

    assert (told["status"], told["stored"]) == ("in_progress", {"events": 4, "ended": False})
    assert (told["times"]["first_token"], told["times"]["ended"]) == ("1970-01-01T00:00:01.002Z", None)
    assert (told["usage"], told["latency_ms"], told["failure"]) == (None, None, None)


async def test_tries_at_one_request_are_told_together(store: Store, audit: Audit) -> None:
    """The first request of a conversation has no chain in common with the tries before it."""
    keys = {"retry_keys": {"idempotency-key": "k"}}
    well = recorded("resp_b", replace(created("resp_b", text=SECRET, at_ms=2000), **keys), STARTED, COMMITTED)
    keep(store, failing("resp_a", **keys), well, turn("resp_c", previous="resp_b", at_ms=3000))

    tries = [each.row.response_id for each in (await audit.turn("resp_b", LOCAL)).attempts]
    told = {
        response_id: [
            (line.row.response_id, line.kind) for line in (await audit.conversation(response_id, LOCAL)).lines
        ]
        for response_id in ("resp_a", "resp_b", "resp_c")
    }

    assert tries == ["resp_a", "resp_b"]
    assert (
        list(told.values()) == [[("resp_a", "attempt"), ("resp_b", "start"), ("resp_c", "continuation")]] * 3
    )


def test_an_event_is_withheld_without_the_hash_of_what_was_there() -> None:
    """Whoever guesses what was said could prove it by the hash."""
    event = withheld(replace(CREATED, metadata={SECRET: SECRET}))

    assert (event.expired_sha256, SECRET in str(event)) == (None, False)


async def test_a_conversation_tells_its_first_texts_only_if_all_are_too_long(
    store: Store, audit: Audit
) -> None:
    """T2-20: every response is listed."""
    told = secret_turn("resp_a")
    keep(store, told, secret_turn("resp_b", previous_response_id="resp_a"))
    audit.told_bytes.limit = 1.5 * len(f"{SECRET}[calls {SECRET} {SECRET}]")

    lines = (await audit.conversation("resp_b", AUDITOR)).lines

    assert [(line.row.response_id, line.exchange is not None) for line in lines] == [
        ("resp_a", True),
        ("resp_b", False),
    ]
    assert audit.told_bytes.reached == 1
