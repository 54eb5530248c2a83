"""Each turn that is committed keeps its whole conversation (T2-08, D-37)."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.adapters.eventstore.stories import (
    COMMITTED,
    FAILED,
    STARTED,
    Store,
    created,
    execute,
    item_events,
    opened,
    recorded,
)
from turnlog.adapters.eventstore.store import reindex
from turnlog.domain.events import Recorded, ResponseEvent

RETENTION_S = 100


def life(
    name: str,
    previous: str | None = None,
    *,
    at_s: int,
    limit_s: int | None = None,
    ending: ResponseEvent | None = COMMITTED,
    **fields: Any,
) -> list[Recorded]:
    """A turn of a server that keeps responses for a hundred seconds, unless their requests limit them."""
    begun = replace(
        created(name, previous=previous, at_ms=1000 * at_s),
        expires_at=at_s + (limit_s or RETENTION_S),
        retention_s=limit_s,
        **fields,
    )
    return recorded(name, begun, STARTED, *([ending] if ending else []))


def keep(store: Store, *lives: list[Recorded]) -> None:
    for each in lives:
        store.journal.append(each).result()


def expiries(store: Store, names: str) -> list[int]:
    """When each of these expires, as GET and audit say it."""
    dated = [store.reader.dated(name).result()[1] for name in names]
    rows = [store.reader.row(name).result() for name in names]
    assert dated == [row and row.expires_at for row in rows]
    return dated


def links(store: Store, name: str, *, now_s: int) -> str:
    """The chain that the response continues at that time."""
    chain = store.reader.chain(name, limit=10, now_s=now_s).result()
    return "".join(events[0].response_id for events in chain)


def swept(store: Store, now_s: int, names: str, *, spare: str = "") -> str:
    """Those of `names` whose content is gone after a sweep at that time."""
    while store.journal.expire(now_s, spare=set(spare)).result():
        pass
    rows = {name: store.reader.row(name).result() for name in names}
    return "".join(name for name, row in rows.items() if row and row.expired)


def test_a_turn_keeps_all_of_its_conversation(store: Store) -> None:
    """T2-08: it is read and continued as long as its newest turn, forks included."""
    keep(store, life("a", at_s=0), life("b", "a", at_s=50), life("c", "a", at_s=90), life("x", at_s=0))

    assert expiries(store, "abcx") == [190, 190, 190, 100]
    assert [links(store, "b", now_s=now_s) for now_s in (189, 190)] == ["ab", ""]
    assert [swept(store, now_s, "abcx") for now_s in (190, 191)] == ["x", "abcx"]


def test_an_item_is_referred_to_as_long_as_its_conversation_is_kept(store: Store) -> None:
    """T2-08."""
    begun, started, committed = (each.event for each in life("a", at_s=0))
    keep(store, recorded("a", begun, started, *item_events("msg"), committed), life("b", "a", at_s=50))

    found = [store.reader.items({"msg"}, now_s=now_s).result().keys() for now_s in (149, 150)]

    assert found == [{"msg"}, set()]


@pytest.mark.parametrize(
    "more",
    [
        pytest.param(life("b", "a", at_s=90, ending=FAILED), id="failed"),
        pytest.param(life("b", "a", at_s=90, ending=None), id="running"),
        pytest.param(life("b", at_s=90, replay_of="a"), id="replay"),
    ],
)
def test_what_is_no_use_keeps_nothing_but_itself(store: Store, more: list[Recorded]) -> None:
    """T2-08: a failed turn and a replay are there for whoever looks at them, as long as any turn."""
    keep(store, life("a", at_s=0), more)

    assert expiries(store, "ab") == [100, 190]
    assert swept(store, 101, "ab") == "a"


def test_what_a_request_limited_is_gone_by_that_limit_and_keeps_what_it_needs(store: Store) -> None:
    """T2-08: the limit is the client's word, whoever goes on from there."""
    keep(store, life("a", at_s=0, limit_s=60), life("b", "a", at_s=50), life("c", "b", at_s=60, limit_s=900))

    assert expiries(store, "abc") == [60, 960, 960]
    assert [links(store, "c", now_s=now_s) for now_s in (59, 60)] == ["abc", "bc"]
    assert swept(store, 61, "abc") == "a"


def test_a_limit_that_only_the_metadata_tell_of_holds(store: Store) -> None:
    """As in logs from before the event had a field for it."""
    old = life("a", at_s=0, metadata={"retention_seconds": 100})

    keep(store, old, life("b", "a", at_s=50))

    assert expiries(store, "ab") == [100, 150]


def test_a_running_turn_keeps_its_conversation_from_the_sweep(store: Store) -> None:
    """It was accepted in time, and will keep it when it is committed; a limit holds all the same."""
    running = life("c", "b", at_s=99, ending=None)
    keep(store, life("a", at_s=0, limit_s=60), life("b", "a", at_s=0), running)

    gone = swept(store, 150, "abc", spare="c")
    store.journal.append(recorded("c", COMMITTED, first=3)).result()

    assert (gone, expiries(store, "abc")) == ("a", [60, 199, 199])


def test_what_has_expired_does_not_come_back(store: Store) -> None:
    """A replay of a conversation's first turn may outlive it, and be continued."""
    keep(store, life("a", at_s=0), life("b", at_s=90, replay_of="a"), life("c", "b", at_s=101))

    assert expiries(store, "abc") == [100, 190, 201]
    assert links(store, "c", now_s=120) == "bc"


def test_a_response_that_expired_by_an_earlier_rule_stays_gone(store: Store) -> None:
    """Its content was removed, though its conversation has been used since."""
    keep(store, life("a", at_s=0), life("b", "a", at_s=50))
    execute(store.path, "UPDATE conversations SET expires_at = 100")
    assert swept(store, 101, "ab") == "a"
    store.reader.close()
    store.journal.close()

    reindex(store.path)

    with opened(store.path) as again:
        assert expiries(again, "ab") == [101, 150]


def test_conversations_are_made_again_from_the_log(path: Path) -> None:
    lives = [
        life("b", "a", at_s=10),  # its parent is stored late, and joins what is known of it
        life("a", "z", at_s=5),
        life("c", "b", at_s=60, limit_s=500),
        life("d", at_s=0, limit_s=60),
        life("e", "d", at_s=50, ending=FAILED),
        life("f", at_s=20, replay_of="e"),
    ]
    conversations = "SELECT * FROM conversations ORDER BY chain"
    with opened(path) as store:
        keep(store, *lives)
        before = expiries(store, "abcdef")
        swept(store, 151, "")
    written = execute(path, conversations)

    reindex(path)

    assert before == [560, 560, 560, 60, 150, 120]
    assert (written, execute(path, conversations)) == ([("d", 60, 1), ("z", 560, 0)],) * 2
