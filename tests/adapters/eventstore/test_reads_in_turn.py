"""Who reads when, and when a read ends that nobody wants any more."""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from queue import SimpleQueue

import pytest

from tests.adapters.eventstore.stories import Store, turn
from tests.waiting import taken, until
from turnlog.adapters.eventstore import reader
from turnlog.adapters.eventstore.store import open_reader
from turnlog.adapters.owner_queue import OwnerQueue
from turnlog.domain.errors import ChainTooLargeError, ReadTimeoutError, ShuttingDownError

ENDLESS = """
    WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 1e15)
    SELECT 'resp_a', 1, :response_id, :owner FROM numbers WHERE n < 0
"""


@pytest.fixture
def endless(store: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store whose responses take for ever to read, within one statement of SQLite."""
    store.journal.append(turn("resp_a")).result()
    monkeypatch.setattr(reader, "_EVENTS", ENDLESS)
    return store


class Gate:
    """Reads that note their start and go on when the test says so."""

    def __init__(self) -> None:
        self.started: SimpleQueue[str] = SimpleQueue()
        self._open = threading.Event()

    def read(self, name: str) -> str:
        self.started.put(name)
        assert self._open.wait(10)
        return name

    def open(self) -> None:
        self._open.set()


@pytest.fixture
def queue() -> Iterator[OwnerQueue]:
    """Two threads, as for clients."""
    with closing(OwnerQueue("read", 2)) as queue:
        yield queue


def test_an_owner_has_one_thread_and_the_others_take_turns(queue: OwnerQueue) -> None:
    gate = Gate()
    many = [queue.submit("ada", partial(gate.read, f"ada {n}")) for n in range(3)]
    first = taken(gate.started)
    others = [queue.submit(owner, partial(gate.read, owner)) for owner in ("bob", "cleo")]
    second = taken(gate.started)
    waiting = gate.started.empty()
    gate.open()
    rest = [taken(gate.started) for _ in range(3)]

    assert (first, second, waiting) == ("ada 0", "bob", True)
    # Bob and Ada have had a turn; neither of Ada's own comes before Cleo's.
    assert rest.index("cleo") < rest.index("ada 2")
    assert [each.result() for each in (*many, *others)] == ["ada 0", "ada 1", "ada 2", "bob", "cleo"]


def test_a_read_that_waits_and_is_cancelled_never_begins(queue: OwnerQueue) -> None:
    gate = Gate()
    running = queue.submit("ada", partial(gate.read, "first"))
    taken(gate.started)
    waiting = [queue.submit("ada", partial(gate.read, f"{n}")) for n in range(100)]
    for each in waiting[:-1]:
        assert each.cancel()
    gate.open()

    assert (running.result(), waiting[-1].result()) == ("first", "99")
    assert taken(gate.started) == "99"


def test_a_cancelled_read_ends_within_its_statement(endless: Store) -> None:
    """Its thread is free again: whoever asks next need not wait."""
    read = endless.reader.events("resp_a", owner="ada")
    threads = endless.reader.budgets[0]
    until(lambda: threads.in_use() == 1)

    assert read.cancel()

    until(lambda: threads.in_use() == 0)
    assert endless.reader.budgets[1].reached == 0
    assert len(endless.reader.chain("resp_a", limit=1, owner="ada").result()) == 1


def test_a_read_that_takes_too_long_is_given_up_and_counted(
    endless: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endless.reader._clients, "_deadline_s", 0.05)

    with pytest.raises(ReadTimeoutError, match=r"not read within 0\.05 s"):
        endless.reader.events("resp_a", owner="ada").result()

    assert {budget.name: budget.reached for budget in endless.reader.budgets} == {
        "client_read_threads": 0,
        "client_read_seconds": 1,
        "audit_read_threads": 0,
        "audit_read_seconds": 0,
        "chain_bytes": 0,
    }


def test_stopping_ends_what_is_read_and_what_waits(endless: Store) -> None:
    """SIGTERM waits for no search."""
    reads = [
        endless.reader.events("resp_a", owner=owner) for owner in ("ada", "ada", "bob", None, None, None)
    ]
    until(lambda: sum(budget.in_use() for budget in endless.reader.budgets[::2]) == 4)

    endless.reader.interrupt()

    for read in reads:
        with pytest.raises(ShuttingDownError):
            read.result()
    assert len(endless.reader.chain("resp_a", limit=1, owner="ada").result()) == 1


def test_one_owner_reading_for_ever_holds_up_neither_others_nor_health(endless: Store) -> None:
    reads = [endless.reader.events("resp_a", owner="ada") for _ in range(50)]
    audits = [endless.reader.events("resp_a") for _ in range(50)]
    until(lambda: sum(budget.in_use() for budget in endless.reader.budgets[::2]) == 3)

    endless.reader.ping().result(10)
    chain = endless.reader.chain("resp_a", limit=1, owner="bob").result(10)

    assert chain == []
    for each in (*reads, *audits):
        each.cancel()


def test_a_chain_is_read_up_to_a_number_of_bytes(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.journal.append(turn("resp_a")).result()
    size_bytes = sum(len(row) for row in _states(store, "resp_a"))
    (_, _, _, _, chain_bytes) = store.reader.budgets

    chain_bytes.limit = size_bytes
    whole = store.reader.chain("resp_a", limit=10).result()
    chain_bytes.limit = size_bytes - 1
    with pytest.raises(ChainTooLargeError, match="The chain behind 'resp_a' has more than"):
        store.reader.chain("resp_a", limit=10).result()

    assert (len(whole), chain_bytes.reached) == (1, 1)


def _states(store: Store, response_id: str) -> list[bytes]:
    with closing(sqlite3.connect(store.path)) as connection:
        rows = connection.execute(
            "SELECT state FROM stored_events WHERE originator_id = ? AND topic NOT LIKE '%extended%'",
            (response_id,),
        )
        return [state for (state,) in rows]


def test_a_command_reads_as_long_as_it_takes(store: Store) -> None:
    """Whoever runs it can stop it."""
    with closing(open_reader(store.path)) as reading:
        limits = [budget.limit for budget in reading.budgets if budget.name.endswith("_seconds")]

    assert limits == [float("inf")] * 2
