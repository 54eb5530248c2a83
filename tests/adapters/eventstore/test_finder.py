"""An auditor finds the responses that meet every condition, page by page, whichever condition leads."""

from itertools import pairwise
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.adapters.eventstore.stories import (
    COMMITTED,
    FAILED,
    INCOMPLETE,
    PERSISTED,
    STARTED,
    Store,
    created,
    execute,
    opened,
    recorded,
)
from turnlog.adapters.eventstore import finder
from turnlog.domain.audit.filters import AuditFilter
from turnlog.domain.audit.folding import folded
from turnlog.domain.audit.rows import AuditRow, Scan
from turnlog.domain.errors import InvalidRequestError
from turnlog.domain.events import ItemClosed, ItemOpened, Recorded, ResponseEvent
from turnlog.domain.items import FunctionCallItem, MessageItem
from turnlog.domain.messages import Message
from turnlog.domain.usage import Usage

CALL = FunctionCallItem("fc_1", "call_1", "look_up", '{"city":"Ypsilanti"}', "completed")


def asked(response_id: str, **fields: Any) -> ResponseEvent:
    return replace(created(response_id), **fields)


def said(text: str) -> ResponseEvent:
    return ItemClosed(at_ms=1004, output_index=0, item=MessageItem("msg_1", "completed", text))


LIVES = [
    recorded("resp_a", asked("resp_a", at_ms=1, metadata={"job": "7", "tries": 2})),
    recorded("resp_b", asked("resp_b", at_ms=5, model="large"), STARTED),
    recorded(
        "resp_c",
        asked("resp_c", at_ms=3, input=(Message("user", "Straße nach Köln"),)),
        STARTED,
        ItemOpened(at_ms=2, output_index=0, item=replace(CALL, status="in_progress")),
        ItemClosed(at_ms=3, output_index=0, item=CALL),
        replace(COMMITTED, at_ms=5003, usage=Usage(100, 20, 64, 8)),
        PERSISTED,
    ),
    recorded(
        "resp_d",
        asked("resp_d", at_ms=3, owner="bob", previous_response_id="resp_c"),
        STARTED,
        said('He said "no" AND* (yes) -x col:y \0 after'),
        INCOMPLETE,
    ),
    recorded("resp_e", asked("resp_e", at_ms=4, replay_of="resp_c"), STARTED, replace(FAILED, at_ms=20)),
    recorded("resp_f", asked("resp_f", at_ms=9), replace(FAILED, reason="cancelled", calls=(CALL,))),
]


def append(store: Store, lives: list[list[Recorded]]) -> None:
    for life in lives:
        store.journal.append(life)
    store.journal.append([]).result()


def found(store: Store, **wanted: Any) -> str:
    """The last letters of the responses that are found."""
    page = store.reader.find(AuditFilter(**wanted)).result()
    return "".join(row.response_id[-1] for row in page.rows)


@pytest.mark.parametrize("narrow", [1, 1000])
@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({}, "fbedca"),
        ({"order": "asc"}, "acdebf"),
        ({"limit": 2}, "fb"),
        ({"since_ms": 3, "until_ms": 5}, "edc"),
        ({"state": "created"}, "a"),
        ({"state": "in_progress"}, "b"),
        ({"state": "persisted"}, "dc"),
        ({"state": "failed"}, "fe"),
        ({"state": "committed"}, ""),
        ({"status": "queued"}, "a"),
        ({"status": "completed"}, "c"),
        ({"status": "incomplete"}, "d"),
        ({"status": "failed"}, "e"),
        ({"status": "cancelled"}, "f"),
        ({"reason": "client_abort"}, "e"),
        ({"model": "large"}, "b"),
        ({"owner": "bob"}, "d"),
        ({"chain": "resp_c"}, "edc"),
        ({"chain": "resp_d"}, "edc"),
        ({"chain": "resp_nobody"}, ""),
        ({"metadata": {"job": "7"}}, "a"),
        ({"metadata": {"tries": "2"}}, "a"),
        ({"metadata": {"job": "7", "tries": "3"}}, ""),
        ({"tool": "look_up"}, "fc"),
        ({"tool": "look"}, ""),
        ({"min_latency_ms": 5000}, "c"),
        ({"min_tokens": 120}, "c"),
        ({"min_tokens": 121}, ""),
        ({"replay_of": "resp_c"}, "e"),
        ({"q": "KÖLN"}, "c"),
        ({"q": "ypsilanti"}, "fc"),
        ({"q": '"no"'}, "d"),
        ({"q": "AND*"}, "d"),
        ({"q": "(yes) -x col:y"}, "d"),
        ({"q": "y \0 after"}, "d"),
        ({"q": "nowhere"}, ""),
        ({"q": "STRASSE"}, "c"),
        ({"q": "strasse  NACH\nko\u0308ln"}, "c"),
        ({"q": "\uff4bo\u0308\uff4c\uff4e"}, "c"),
        ({"q": "ö"}, "c"),
        ({"q": "PS"}, "fc"),
        ({"q": "“N"}, "d"),
        ({"q": "hi", "order": "asc"}, "def"),
        ({"q": "zz"}, ""),
        ({"q": "ps", "status": "cancelled"}, "f"),
        ({"q": "ypsilanti", "status": "cancelled"}, "f"),
        ({"tool": "look_up", "model": "smol", "order": "asc"}, "cf"),
        ({"owner": "ada", "state": "failed", "since_ms": 5}, "f"),
    ],
)
def test_each_condition_is_met(
    store: Store, monkeypatch: pytest.MonkeyPatch, narrow: int, wanted: Any, expected: str
) -> None:
    """Once where few meet it, and once where many do."""
    append(store, LIVES)
    monkeypatch.setattr(finder, "NARROW", narrow)
    monkeypatch.setattr(finder, "_FIRST_CHUNK", 1)

    assert found(store, **wanted) == expected


def test_a_row_tells_what_a_list_shows(store: Store) -> None:
    append(store, LIVES)

    row = store.reader.row("resp_c").result()

    assert row is not None
    assert (row.latency_ms, len(row.body_digest or "")) == (5000, 64)
    assert replace(row, body_digest=None) == AuditRow(
        response_id="resp_c",
        previous_response_id=None,
        chain="resp_c",
        replay_of=None,
        owner="ada",
        model="smol",
        state="persisted",
        status="completed",
        outcome="completed",
        reason=None,
        created_ms=3,
        started_ms=1001,
        ended_ms=5003,
        expires_at=2000,
        last_version=6,
        expired=False,
        usage=Usage(100, 20, 64, 8),
        tools=("look_up",),
        retry_digest=None,
        body_digest=None,
    )


def test_nobody_sees_the_responses_of_another_owner(store: Store) -> None:
    """D-18."""
    append(store, LIVES)
    reader = store.reader

    assert reader.row("resp_d", owner="ada").result() is None
    assert reader.family("resp_d", owner="ada").result() == []
    assert reader.family("resp_c", owner="bob").result() == []
    assert [row.response_id for row in reader.family("resp_c", owner="ada").result()] == ["resp_c", "resp_e"]
    assert reader.replays_of("resp_c", owner="bob").result() == []
    assert reader.attempts_of("resp_d", owner="ada").result() == []
    with pytest.raises(InvalidRequestError, match="Response 'resp_d' not found") as refused:
        reader.find(AuditFilter(owner="ada", after="resp_d")).result()
    assert refused.value.param == "after"


def test_an_item_of_another_owner_is_not_there(store: Store) -> None:
    """D-18."""
    append(store, LIVES)
    reader = store.reader

    items = [reader.items({"fc_1"}, now_s=0, owner=owner).result() for owner in ("bob", "ada", None)]

    assert items == [{}, {"fc_1": CALL}, {"fc_1": CALL}]


def test_a_conversation_has_forks_failed_turns_and_replays_oldest_first(store: Store) -> None:
    append(store, LIVES)

    family = store.reader.family("resp_d").result()
    replays = store.reader.replays_of("resp_c").result()

    assert [(row.response_id, row.previous_response_id, row.replay_of) for row in family] == [
        ("resp_c", None, None),
        ("resp_d", "resp_c", None),
        ("resp_e", None, "resp_c"),
    ]
    assert [row.response_id for row in replays] == ["resp_e"]


def test_a_parent_that_is_stored_late_brings_its_children_into_its_conversation(store: Store) -> None:
    for response_id, previous in [("c", "b"), ("e", "b"), ("d", "c"), ("a", None), ("b", "a")]:
        link = created(f"resp_{response_id}", previous=previous and f"resp_{previous}")
        store.journal.append(recorded(f"resp_{response_id}", link)).result()

    chains = [row.chain for row in store.reader.find(AuditFilter()).result().rows]

    assert chains == ["resp_a"] * 5


def test_attempts_at_one_request_are_found_from_each_of_them(store: Store) -> None:
    failed = replace(FAILED, at_ms=2000)
    append(
        store,
        [
            recorded("resp_a", asked("resp_a"), failed),
            recorded("resp_b", asked("resp_b", at_ms=3000), STARTED, COMMITTED),
            recorded("resp_c", asked("resp_c", at_ms=4000), STARTED, COMMITTED),
            recorded("resp_d", asked("resp_d", at_ms=4000, owner="bob"), STARTED, COMMITTED),
        ],
    )

    attempts = [
        [row.response_id for row in store.reader.attempts_of(f"resp_{letter}").result()] for letter in "abcd"
    ]

    assert attempts == [["resp_a", "resp_b"], ["resp_a", "resp_b"], ["resp_c"], ["resp_d"]]


WORDS = st.sampled_from(["apple", "pear", "plum", "quince", 'a"b', "Ärger", "天気", "ß"])
CONDITIONS = st.fixed_dictionaries(
    {},
    optional={
        "since_ms": st.integers(0, 6),
        "until_ms": st.integers(0, 6),
        "status": st.sampled_from(["queued", "completed", "failed"]),
        "model": st.sampled_from(["smol", "large"]),
        "owner": st.sampled_from(["ada", "bob"]),
        "metadata": st.dictionaries(st.just("k"), st.sampled_from("12"), max_size=1),
        "min_latency_ms": st.integers(0, 12),
        "q": WORDS,
    },
)


class Turn(NamedTuple):
    """What is drawn of a turn; one with a negative time is still queued."""

    at_ms: int
    model: str
    owner: str
    value: str
    words: list[str]
    took_ms: int

    @property
    def text(self) -> str:
        return " ".join(self.words)

    @property
    def ended(self) -> bool:
        return self.took_ms >= 0


TURNS = st.lists(
    st.builds(
        Turn,
        at_ms=st.integers(0, 5),
        model=st.sampled_from(["smol", "large"]),
        owner=st.sampled_from(["ada", "bob"]),
        value=st.sampled_from("12"),
        words=st.lists(WORDS, max_size=3),
        took_ms=st.integers(-1, 12),
    ),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(
    turns=TURNS,
    wanted=CONDITIONS,
    order=st.sampled_from(["asc", "desc"]),
    size=st.integers(1, 4),
    narrow=st.integers(1, 5),
    bound=st.integers(1, 5),
)
def test_pages_put_together_are_what_a_plain_look_finds(
    *, turns: list[Turn], wanted: Any, order: Any, size: int, narrow: int, bound: int
) -> None:
    """T2-14: also where the texts themselves are looked at, page by page as far as each may."""
    with opened(None) as store, pytest.MonkeyPatch.context() as patch:
        patch.setattr(finder, "NARROW", narrow)
        patch.setattr(finder, "_FIRST_CHUNK", 2)
        patch.setattr(finder, "SCANNED_RESPONSES", bound)
        for n, turn in enumerate(turns):
            request = asked(
                f"resp_{n}",
                at_ms=turn.at_ms,
                model=turn.model,
                owner=turn.owner,
                metadata={"k": turn.value},
                input=(Message("user", turn.text),),
            )
            ended = [replace(COMMITTED, at_ms=turn.at_ms + turn.took_ms)] if turn.ended else []
            store.journal.append(recorded(f"resp_{n}", request, *ended)).result()

        pages, after = [], None
        while True:
            asked_for = AuditFilter(**wanted, order=order, limit=size, after=after)
            page = store.reader.find(asked_for).result()
            pages.append(page)
            after = page.last_id
            if not page.has_more:
                break

    def admits(turn: Turn) -> bool:
        status = "completed" if turn.ended else "queued"
        return (
            wanted.get("since_ms", 0) <= turn.at_ms < wanted.get("until_ms", 99)
            and wanted.get("status", status) == status
            and wanted.get("model", turn.model) == turn.model
            and wanted.get("owner", turn.owner) == turn.owner
            and wanted.get("metadata", {}).get("k", turn.value) == turn.value
            and ("min_latency_ms" not in wanted or (turn.ended and turn.took_ms >= wanted["min_latency_ms"]))
            and ("q" not in wanted or (turn.ended and folded(wanted["q"]) in folded(turn.text)))
        )

    in_order = sorted(enumerate(turns), key=lambda each: (each[1].at_ms, each[0]), reverse=order == "desc")
    expected = [f"resp_{n}" for n, turn in in_order if admits(turn)]
    assert [row.response_id for page in pages for row in page.rows] == expected
    assert all(len(page.rows) == size for page, _ in pairwise(pages) if not (page.scan and page.scan.cut))
    assert {page.scan is not None for page in pages} == {len(folded(wanted.get("q", "word"))) < 3}


def test_a_scan_says_how_far_it_came(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """T2-14: it looks at what has ended and meets the other conditions."""
    append(store, LIVES)
    monkeypatch.setattr(finder, "SCANNED_RESPONSES", 2)

    first = store.reader.find(AuditFilter(q="ö", owner="ada")).result()
    second = store.reader.find(AuditFilter(q="ö", owner="ada", after=first.last_id)).result()
    indexed = store.reader.find(AuditFilter(q="köln")).result()

    assert (first.rows, first.has_more, first.last_id) == ([], True, "resp_e")
    assert first.scan == Scan(responses=2, reached="resp_e", reached_ms=4, cut=True)
    assert [row.response_id for row in second.rows] == ["resp_c"]
    assert second.scan == Scan(responses=1, reached="resp_c", reached_ms=3, cut=False)
    assert (second.has_more, indexed.scan) == (False, None)


def test_long_texts_end_a_scan_sooner(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """T2-14."""
    append(store, LIVES)
    monkeypatch.setattr(finder, "SCANNED_CHARACTERS", 5)

    scan = store.reader.find(AuditFilter(q="zz")).result().scan

    assert scan == Scan(responses=1, reached="resp_f", reached_ms=9, cut=True)


def test_a_scan_goes_on_past_what_cannot_be_read(store: Store) -> None:
    """T2-14."""
    append(store, LIVES)
    damaged = "UPDATE stored_events SET state = ? WHERE originator_id = 'resp_e' AND originator_version = 1"
    execute(store.path, damaged, b'{"type":"respo')

    assert found(store, q="hi") == "fd"


def test_a_scan_of_nothing_has_reached_nothing(store: Store) -> None:
    """T2-14."""
    page = store.reader.find(AuditFilter(q="ö")).result()

    assert (page.last_id, page.scan) == (None, Scan(responses=0, reached=None, reached_ms=None, cut=False))
