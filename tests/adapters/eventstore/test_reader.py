"""The reader tells responses, chains and lists, and never waits for a writer."""

from concurrent.futures import Future
from typing import Any

import pytest
from msgspec.structs import replace

from tests.adapters.eventstore.stories import (
    FAILED,
    STARTED,
    Store,
    created,
    execute,
    recorded,
    turn,
    without_deltas,
    write_locked,
)
from tests.listed import listed
from turnlog.domain.audit.filters import AuditFilter
from turnlog.domain.errors import StorageError
from turnlog.domain.events import ResponseCreated


def test_a_response_nobody_made_has_no_events_no_chain_and_no_row(store: Store) -> None:
    """R-109, R-113."""
    events = store.reader.events("resp_a").result()
    chain = store.reader.chain("resp_a", limit=10).result()
    rows = listed(store.reader)

    assert (events, chain, rows) == ([], [], [])


def test_a_chain_is_told_from_its_oldest_response_without_deltas(store: Store) -> None:
    """R-109, R-110."""
    # Ids that sort against the chain, and a branch that does not belong to it.
    links = [turn("resp_c"), turn("resp_a", previous="resp_c"), turn("resp_b", previous="resp_a")]
    for link in [*links, turn("resp_d", previous="resp_c")]:
        store.journal.append(link).result()

    chain = store.reader.chain("resp_b", limit=10).result()

    assert chain == [without_deltas(link) for link in links]


def test_a_chain_ends_before_an_ancestor_that_is_gone(store: Store) -> None:
    """R-111."""
    links = [turn("resp_b", previous="resp_a"), turn("resp_c", previous="resp_b")]
    for link in links:
        store.journal.append(link).result()

    chain = store.reader.chain("resp_c", limit=10).result()

    assert chain == [without_deltas(link) for link in links]


def test_a_chain_is_read_one_response_beyond_its_limit_and_no_further(store: Store) -> None:
    """D-31, R-112."""
    links = [turn("resp_0"), *(turn(f"resp_{n}", previous=f"resp_{n - 1}") for n in range(1, 6))]
    for link in links:
        store.journal.append(link).result()

    chains = [store.reader.chain("resp_5", limit=limit).result() for limit in (0, 2, 4, 5)]

    assert chains == [[without_deltas(link) for link in links[first:]] for first in (5, 3, 1, 0)]


@pytest.mark.parametrize("previous", ["resp_a", "resp_b"])
def test_a_chain_that_runs_in_a_circle_ends(store: Store, previous: str) -> None:
    """D-31, R-112."""
    circle = {
        "resp_a": turn("resp_a", previous=previous),
        "resp_b": turn("resp_b", previous="resp_a"),
    }
    for link in circle.values():
        store.journal.append(link).result()

    chain = store.reader.chain("resp_a", limit=4).result()

    ids = {"resp_a": ["resp_a"] * 5, "resp_b": ["resp_a", "resp_b", "resp_a", "resp_b", "resp_a"]}
    assert chain == [without_deltas(circle[response_id]) for response_id in ids[previous]]


def test_nothing_of_a_foreign_response_is_read(store: Store) -> None:
    """D-18: or how long that takes would tell that it is there. What cannot be read shows what was read."""
    for link in [turn("resp_a"), turn("resp_b", previous="resp_a")]:
        store.journal.append(link).result()
    execute(store.path, "UPDATE stored_events SET state = 'damaged'")

    foreign = [
        store.reader.events("resp_b", owner="bob").result(),
        store.reader.chain("resp_b", limit=10, owner="bob").result(),
        store.reader.dated("resp_b", owner="bob").result(),
    ]

    assert foreign == [[], [], ([], 0)]
    for owned in (
        store.reader.events("resp_b", owner="ada"),
        store.reader.chain("resp_b", limit=9, owner="ada"),
    ):
        with pytest.raises(StorageError, match="cannot be read"):
            owned.result()


def test_a_chain_ends_before_an_ancestor_of_another_owner(store: Store) -> None:
    """D-18: no server makes one, but a log may be imported."""
    foreign, *rest = turn("resp_a")
    assert isinstance(foreign.event, ResponseCreated)
    store.journal.append([replace(foreign, event=replace(foreign.event, owner="bob")), *rest]).result()
    store.journal.append(turn("resp_b", previous="resp_a")).result()

    chain = store.reader.chain("resp_b", limit=10, owner="ada").result()

    assert chain == [without_deltas(turn("resp_b", previous="resp_a"))]


def test_what_has_not_ended_is_found_for_recovery(store: Store) -> None:
    store.journal.append(recorded("resp_b", created("resp_b", at_ms=1), STARTED))
    store.journal.append(recorded("resp_a", created("resp_a", at_ms=2)))
    store.journal.append(recorded("resp_c", created("resp_c"), FAILED))
    store.journal.append(turn("resp_d")).result()

    assert store.reader.unfinished().result() == ["resp_b", "resp_a"]


def test_the_store_answers_while_a_write_is_stuck(store: Store) -> None:
    with write_locked(store.path):
        stuck = store.journal.append(turn("resp_a"))
        store.reader.ping().result()
        waited = not stuck.done()
    stuck.result()

    assert waited


def test_a_file_that_was_deleted_or_replaced_is_noticed(store: Store) -> None:
    at_first = store.reader.same_file()
    aside = store.path.rename(store.path.with_name("aside.db"))
    deleted = store.reader.same_file()
    store.path.write_bytes(aside.read_bytes())
    replaced = store.reader.same_file()
    aside.replace(store.path)
    restored = store.reader.same_file()

    assert (at_first, deleted, replaced, restored) == (True, False, False, True)


def test_reading_does_not_wait_for_a_writer(store: Store) -> None:
    store.journal.append(turn("resp_a")).result()

    with write_locked(store.path):
        stuck = store.journal.append(turn("resp_b"))
        events = store.reader.events("resp_a").result()
        chain = store.reader.chain("resp_a", limit=10).result()
        rows = [row.response_id for row in listed(store.reader)]
        waited = not stuck.done()
    stuck.result()

    assert (events, chain, rows) == (turn("resp_a"), [without_deltas(turn("resp_a"))], ["resp_a"])
    assert waited


def test_a_row_that_was_damaged_is_named_and_the_others_can_be_read(store: Store) -> None:
    for response_id in ("resp_a", "resp_b"):
        store.journal.append(turn(response_id)).result()
    execute(
        store.path,
        "UPDATE stored_events SET state = ? WHERE originator_id = ? AND originator_version = ?",
        b'{"type":"respo',
        "resp_a",
        6,
    )

    damaged: list[Future[Any]] = [store.reader.events("resp_a"), store.reader.chain("resp_a", limit=10)]

    for read in damaged:
        with pytest.raises(StorageError, match=r"Event 6 of response 'resp_a' \(response.committed.v1\)"):
            read.result()
    assert store.reader.events("resp_b").result() == turn("resp_b")


def test_what_sqlite_takes_no_parameter_of_is_a_storage_error(store: Store) -> None:
    reads: list[Future[Any]] = [store.reader.events("\ud800"), store.reader.chain("resp_a", limit=2**64)]
    for read in reads:
        with pytest.raises(StorageError, match="The event store could not be read"):
            read.result()


def test_a_store_whose_tables_are_gone_is_a_storage_error(store: Store) -> None:
    execute(store.path, "DROP TABLE stored_events")
    execute(store.path, "DROP TABLE responses")
    reads: list[Future[Any]] = [
        store.reader.events("resp_a"),
        store.reader.chain("resp_a", limit=10),
        store.reader.find(AuditFilter()),
        store.reader.unfinished(),
        store.reader.ping(),
    ]
    for read in reads:
        with pytest.raises(StorageError, match="The event store could not be read: no such table"):
            read.result()
