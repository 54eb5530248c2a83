"""Which running turns there are, and whose."""

from msgspec.structs import replace

from tests.domain.stories import COMMITTED, CREATED, STARTED
from turnlog.adapters.openai.frames import Framer
from turnlog.app.turns.live import LiveTurn
from turnlog.app.turns.live_turns import LiveTurns
from turnlog.domain.events import ItemClosed, ItemOpened, ResponseEvent
from turnlog.domain.items import MessageItem
from turnlog.domain.response import fold


def begun(
    live: LiveTurns, response_id: str, *events: ResponseEvent, owner: str, store: bool = True
) -> LiveTurn:
    """A turn to which that has happened."""
    created = replace(CREATED, response_id=response_id, owner=owner, store=store)
    turn = LiveTurn(fold([created, *events]), Framer())
    live.add(turn)
    return turn


def answered(item_id: str) -> tuple[ResponseEvent, ...]:
    """One whole item."""
    opened = ItemOpened(at_ms=0, output_index=0, item=MessageItem(item_id, "in_progress", ""))
    return (
        STARTED,
        opened,
        ItemClosed(at_ms=0, output_index=0, item=MessageItem(item_id, "completed", "hi")),
    )


def test_a_turn_is_its_owners_and_an_operators() -> None:
    """D-18."""
    live = LiveTurns()
    turn = begun(live, "resp_a", owner="alice")

    assert [live.of("resp_a", owner) for owner in ("alice", "bob", None)] == [turn, None, turn]
    assert [live.of("resp_x", owner) for owner in ("alice", "bob", None)] == [None] * 3
    assert [live.owner_of(response_id) for response_id in ("resp_a", "resp_x")] == ["alice", None]


def test_a_turn_leaves_once_however_often_it_is_let_go() -> None:
    """At the hard limit, and when the wedged write settles (R-360)."""
    live = LiveTurns()
    begun(live, "resp_a", owner="alice")
    ids = live.ids

    live.remove("resp_a")
    live.remove("resp_a")

    assert (ids, live.ids) == (frozenset({"resp_a"}), frozenset())
    assert live.of("resp_a", None) is None


def test_a_turn_is_queued_until_it_starts_or_ends() -> None:
    live = LiveTurns()
    begun(live, "resp_a", owner="alice")
    begun(live, "resp_b", STARTED, owner="alice")
    begun(live, "resp_c", STARTED, COMMITTED, owner="alice")
    begun(live, "resp_d", owner="bob")

    assert [live.queued_of(owner) for owner in ("alice", "bob", "carol")] == [1, 1, 0]


def test_an_owner_refers_to_its_own_items_of_turns_that_are_stored() -> None:
    """D-18, D-30."""
    live = LiveTurns()
    begun(live, "resp_a", *answered("msg_a"), owner="alice")
    begun(live, "resp_b", *answered("msg_b"), owner="alice", store=False)
    begun(live, "resp_c", *answered("msg_c"), owner="bob")

    asked = {"msg_a", "msg_b", "msg_c", "msg_x"}

    assert live.items_of("alice", asked) == {"msg_a": MessageItem("msg_a", "completed", "hi")}
    assert live.items_of("alice", asked - {"msg_a"}) == {}
    assert live.items_of("bob", asked).keys() == {"msg_c"}
