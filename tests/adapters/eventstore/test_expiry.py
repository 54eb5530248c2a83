"""What expired loses its content, in small steps, and keeps its place in the log (R-029, D-14)."""

from collections.abc import Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any, get_args

import pytest
from msgspec.structs import replace

from tests.adapters.eventstore.faults import FaultyStore, Gate
from tests.adapters.eventstore.stories import (
    COMMITTED,
    FAILED,
    HARD_TIMED_OUT,
    PERSISTED,
    STARTED,
    Store,
    created,
    execute,
    opened,
    recorded,
    turn,
    without_deltas,
    write_locked,
)
from tests.domain.stories import DELETED, RENAMED, REQUEUED, STEERS_COMMITTED, STEERS_FAILED
from tests.listed import listed
from turnlog.adapters.eventstore.codec import EventMapper
from turnlog.adapters.eventstore.store import open_reader, vacuum
from turnlog.domain.audit.filters import AuditFilter
from turnlog.domain.errors import StorageError
from turnlog.domain.events import (
    ContentExpired,
    ItemClosed,
    ItemExtended,
    ItemOpened,
    ReasoningDropped,
    Recorded,
    ResponseEvent,
    SteerAccepted,
    TurnCommitted,
)
from turnlog.domain.items import CustomCallItem, FunctionCallItem, Logprob, MessageItem, ReasoningItem
from turnlog.domain.messages import Message, ToolCall
from turnlog.domain.ports import ContentExpirer
from turnlog.domain.redaction import without_content
from turnlog.domain.response import fold_stored
from turnlog.domain.tokens import pack, record_prompt

SECRET = "geheim"
SECRET_IDS = (0x67676767, 0x68686868)  # "gggghhhh" when packed
EXPIRES_AT = 2000
NOW_S = EXPIRES_AT + 1
HELD = {
    "metadata": {SECRET: SECRET},
    "tools": ({"name": SECRET},),
    "text": {SECRET: 1},
    "tool_choice": SECRET,
}

REQUEST = replace(
    created("resp_a", text=SECRET),
    input=(Message("user", SECRET), Message("assistant", "", tool_calls=(ToolCall("c", SECRET, SECRET),))),
    instructions=SECRET,
    prompt_cache_key=SECRET,
    cache_salt=SECRET,
    safety_identifier=SECRET,
    reasoning={SECRET: SECRET},
    retry_keys={"key": SECRET},
    sampling=replace(created("resp_a").sampling, stop=(SECRET,)),
    **HELD,
)
PIECES: list[ResponseEvent] = [
    ItemOpened(at_ms=2, output_index=0, item=MessageItem("msg_1", "in_progress", SECRET)),
    ItemExtended(at_ms=3, item_id="msg_1", deltas=(SECRET,), logprobs=((Logprob(SECRET, 0.0),),)),
    ItemClosed(
        at_ms=4, output_index=0, item=MessageItem("msg_1", "completed", SECRET, (Logprob(SECRET, 0.0),))
    ),
    ItemClosed(at_ms=4, output_index=1, item=ReasoningItem("rs_1", SECRET)),
    ItemClosed(
        at_ms=4, output_index=2, item=FunctionCallItem("fc_1", "c1", SECRET, SECRET, "completed", SECRET)
    ),
    ItemClosed(
        at_ms=4, output_index=3, item=CustomCallItem("ctc_1", "c2", SECRET, SECRET, "completed", SECRET)
    ),
    ReasoningDropped(at_ms=5, text=SECRET),
]
STARTED_ON_SECRET = replace(STARTED, prompt=record_prompt(SECRET_IDS))
ANSWERED = replace(COMMITTED, output_ids=pack(SECRET_IDS))
BROKEN = replace(
    FAILED,
    message=SECRET,
    calls=(FunctionCallItem("fc_2", "c3", SECRET, SECRET, "completed"),),
    output_ids=pack(SECRET_IDS),
)
STEERED = SteerAccepted(at_ms=6, steer_id="steer_1", input=(Message("user", SECRET),))
LIFE = recorded("resp_a", REQUEST, STARTED_ON_SECRET, *PIECES, ANSWERED, PERSISTED)


def sweep(journal: ContentExpirer, now_s: int = NOW_S, limit: int = 500) -> list[int]:
    """Sweep until nothing is left; how many events each step went through."""
    steps = []
    while done := journal.expire(now_s, limit=limit).result():
        steps.append(done)
    return steps


def expected(life: list[Recorded]) -> list[Recorded]:
    """A life as it is read when it has expired."""
    mapper = EventMapper()
    left = [
        replace(
            each, event=without_content(each.event, sha256(mapper.to_stored_event(each).state).hexdigest())
        )
        for each in life
    ]
    return [*left, Recorded(life[0].response_id, len(life) + 1, ContentExpired(at_ms=NOW_S * 1000))]


def files(path: Path) -> Iterator[bytes]:
    for file in path.parent.iterdir():
        yield file.read_bytes()


def test_nothing_of_what_was_said_is_left_in_any_event() -> None:
    """D-14."""
    mapper = EventMapper()
    events = [each.event for each in LIFE] + [BROKEN, HARD_TIMED_OUT, REQUEUED, DELETED, RENAMED]
    events += [STEERED, STEERS_COMMITTED, STEERS_FAILED]
    assert {type(event) for event in events} | {ContentExpired} == set(get_args(ResponseEvent))

    left = [mapper.transcoder.encode(without_content(event, "abc")) for event in events]

    packed = [b"Z2dnZ2hoaGg", record_prompt(SECRET_IDS).digest.encode()]
    for state in left:
        assert not [word for word in (SECRET.encode(), *packed) if word in state]


def test_the_marker_keeps_topic_version_time_and_the_hash_of_what_was_there(store: Store) -> None:
    """D-14."""
    store.journal.append(LIFE).result()
    columns = "SELECT originator_version, topic, state FROM stored_events ORDER BY originator_version"
    before = execute(store.path, columns)

    sweep(store.journal)

    after = execute(store.path, columns)
    events = store.reader.events("resp_a").result()
    assert [row[:2] for row in after] == [*[row[:2] for row in before], (12, "response.content_expired.v1")]
    assert [each.event.at_ms for each in events[:-1]] == [each.event.at_ms for each in LIFE]
    assert [each.event.expired_sha256 for each in events] == [
        *[sha256(state).hexdigest() for _, _, state in before[:-1]],
        None,  # when it was stored, is no content
        None,
    ]


def test_an_expired_stream_is_read_and_folded_like_any_other(store: Store) -> None:
    store.journal.append(LIFE).result()

    sweep(store.journal)

    events = store.reader.events("resp_a").result()
    response = fold_stored(each.event for each in events)
    assert events == expected(LIFE)
    assert (response.status, isinstance(response.ended, TurnCommitted)) == ("persisted", True)
    assert [item.id for item in response.items] == ["msg_1", "rs_1", "fc_1", "ctc_1"]


def test_no_file_of_the_store_holds_the_content_any_more(path: Path) -> None:
    """Neither in freed pages nor in the write-ahead log."""
    long_secret = replace(REQUEST, instructions=SECRET * 10_000)
    with opened(path) as store:
        store.journal.append(recorded("resp_a", long_secret, *[each.event for each in LIFE[1:]])).result()
        store.journal.append(turn("resp_live")).result()
        there = [SECRET.encode() in content for content in files(path)]

        sweep(store.journal)

        gone = [SECRET.encode() in content for content in files(path)]

    assert (any(there), any(gone)) == (True, False)


def test_the_row_stays_without_items_and_is_the_one_made_again_from_the_log(path: Path) -> None:
    tables = ("SELECT * FROM responses", "SELECT * FROM response_items")
    with opened(path) as store:
        store.journal.append(LIFE).result()
        (row_before,) = listed(store.reader)
        sweep(store.journal)
        (row_after,) = listed(store.reader)
        items = store.reader.items({"msg_1"}, now_s=0).result()
    written = [execute(path, table) for table in tables]
    execute(path, "DELETE FROM readmodel_version")
    with opened(path):
        pass

    assert row_after == replace(
        row_before, last_version=12, expired=True, tools=(), retry_digest=None, body_digest=None
    )
    assert items == {}
    assert [execute(path, table) for table in tables] == written


def test_what_expired_is_not_found_by_what_was_said(store: Store) -> None:
    """D-14: read-model and search rows lose their content, too."""
    store.journal.append(LIFE).result()
    secrets: list[dict[str, Any]] = [{"q": SECRET}, {"tool": SECRET}, {"metadata": {SECRET: SECRET}}]
    before = [len(store.reader.find(AuditFilter(**each)).result().rows) for each in secrets]

    sweep(store.journal)

    after = [len(store.reader.find(AuditFilter(**each)).result().rows) for each in secrets]
    (row,) = store.reader.find(AuditFilter(status="completed")).result().rows
    assert (before, after) == ([1, 1, 1], [0, 0, 0])
    assert (row.expired, row.tools, row.retry_digest, row.body_digest) == (True, (), None, None)


def test_after_a_vacuum_no_three_letters_of_it_are_in_the_text_index(path: Path) -> None:
    """D-14: of what is in no other response either."""
    with opened(path) as store:
        store.journal.append(LIFE).result()
        store.journal.append(turn("resp_live")).result()
        sweep(store.journal)

    vacuum(path)

    execute(path, "CREATE VIRTUAL TABLE words USING fts5vocab (response_texts, row)")
    blocks = b"".join(block for (block,) in execute(path, "SELECT block FROM response_texts_data"))
    assert execute(path, "SELECT term FROM words WHERE term IN ('geh', 'ehe', 'hei', 'eim')") == []
    assert [word for word in (b"geh", b"ehe", b"hei", b"eim") if word in blocks] == []
    assert SECRET.encode() not in path.read_bytes()


def test_a_text_that_cannot_be_told_any_more_is_not_found_all_the_same(store: Store) -> None:
    store.journal.append(turn("resp_a")).result()
    damaged = "UPDATE stored_events SET state = ? WHERE originator_id = 'resp_a' AND originator_version = 5"
    execute(store.path, damaged, b'{"type":"respo')

    sweep(store.journal)

    assert store.reader.find(AuditFilter(q="ello")).result().rows == []


def test_a_chain_ends_before_an_expired_response(store: Store) -> None:
    """R-111: as before one that is not there."""
    links = [turn("resp_a"), turn("resp_b", previous="resp_a"), turn("resp_c", previous="resp_b")]
    for link in links[:2]:
        store.journal.append(link).result()
    sweep(store.journal)
    store.journal.append(links[2]).result()

    chains = [store.reader.chain(f"resp_{letter}", limit=10).result() for letter in "abc"]

    assert chains == [[], [], [without_deltas(links[2])]]


def test_only_what_has_ended_and_expired_is_swept_and_only_once(store: Store) -> None:
    """R-029: `expires_at` < now."""
    store.journal.append(turn("resp_a")).result()
    store.journal.append(recorded("resp_b", created("resp_b"), STARTED)).result()
    store.journal.append(recorded("resp_c", created("resp_c"), FAILED)).result()
    store.journal.append(turn("resp_live")).result()

    too_early = sweep(store.journal, EXPIRES_AT)
    spared = store.journal.expire(NOW_S, spare={"resp_a", "resp_live", "resp_c"}).result()
    first = store.journal.expire(NOW_S, spare={"resp_live"}).result()
    again = store.journal.expire(NOW_S, spare={"resp_live"}).result()

    assert (too_early, spared, first, again) == ([], 0, 8 + 3, 0)
    expired = {row.response_id: row.expired for row in listed(store.reader)}
    assert expired == {"resp_a": True, "resp_b": False, "resp_c": True, "resp_live": False}


def test_a_long_response_is_swept_in_steps_and_stays_readable_between_them(store: Store) -> None:
    store.journal.append(LIFE).result()
    done = store.journal.expire(NOW_S, limit=4).result()
    between = store.reader.events("resp_a").result()

    steps = sweep(store.journal, limit=4)

    assert (done, steps) == (4, [4, 4])
    assert between == [*expected(LIFE)[:4], *LIFE[4:]]
    assert store.reader.events("resp_a").result() == expected(LIFE)


def test_a_sweep_that_was_interrupted_goes_on_after_a_restart(path: Path) -> None:
    with opened(path) as store:
        store.journal.append(LIFE).result()
        store.journal.expire(NOW_S, limit=4).result()

    with opened(path) as store:
        sweep(store.journal)
        events = store.reader.events("resp_a").result()

    assert events == expected(LIFE)


def test_a_locked_file_fails_the_step_and_the_next_one_does_its_work(store: Store) -> None:
    store.journal.append(LIFE).result()

    with (
        write_locked(store.path),
        pytest.raises(StorageError, match=r"Expired content could not be removed: database is locked"),
    ):
        store.journal.expire(NOW_S).result()
    sweep(store.journal)

    assert store.reader.events("resp_a").result() == expected(LIFE)


def test_a_step_waits_its_turn_among_the_appends(faulty: FaultyStore) -> None:
    gate = Gate()
    faulty.recorder.faults.append(gate)
    held = faulty.journal.append(turn("resp_a"))
    gate.reached.wait()

    before = faulty.journal.append(turn("resp_b"))
    swept = faulty.journal.expire(NOW_S)
    after = faulty.journal.append(turn("resp_c"))
    gate.open.set()

    assert swept.result() == 8 + 8
    assert (held.done(), before.done(), after.result()) == (True, True, None)


def test_an_event_that_cannot_be_read_stays_and_the_rest_is_swept(store: Store) -> None:
    store.journal.append(turn("resp_a")).result()
    store.journal.append(turn("resp_b")).result()
    damaged = "UPDATE stored_events SET state = ? WHERE originator_id = 'resp_a' AND originator_version = 4"
    execute(store.path, damaged, b'{"type":"respo')

    sweep(store.journal)

    assert [row.expired for row in listed(store.reader)] == [True, True]
    assert store.reader.events("resp_b").result() == expected(turn("resp_b"))
    with pytest.raises(StorageError, match="Event 4 of response 'resp_a'"):
        store.reader.events("resp_a").result()


def test_a_command_reads_an_expired_stream(path: Path) -> None:
    with opened(path) as store:
        store.journal.append(LIFE).result()
        sweep(store.journal)

    with closing(open_reader(path)) as reader:
        assert reader.events("resp_a").result() == expected(LIFE)
