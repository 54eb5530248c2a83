"""What is so after every step, whatever has happened."""

from tests.model.known import KnownTurn
from tests.model.world import World
from turnlog.adapters.openai.frames import DONE, Framer, frames
from turnlog.app.turns.pending import Sizes
from turnlog.domain.events import PersistHardTimedOut, ResponseCreated, TurnCommitted, TurnPersisted
from turnlog.domain.lifecycle import LifecycleEvent
from turnlog.domain.response import Response, fold

# ── on the disk ───────────────────────────────────────────────────────────────────────────────────


def versions_have_no_gap(world: World) -> None:
    """They are 1 … n, and nobody has asked for another place than the next one."""
    assert not world.disk.misplaced, f"handed over for the wrong place: {world.disk.misplaced}"
    for stream in world.disk.streams.values():
        assert [recorded.version for recorded in stream] == list(range(1, len(stream) + 1))


def what_was_acknowledged_is_stored(world: World) -> None:
    """For ever."""
    for recorded in world.disk.acknowledged:
        assert world.disk.streams[recorded.response_id][recorded.version - 1] is recorded


def a_turn_has_one_end(world: World) -> None:
    """Never two; none only while a process runs it, or after the store refused to take the recovery's."""
    running = {known.id for known in world.mine}
    for response_id in world.disk.streams:
        ends = len(world.disk.ends(response_id))
        refused = response_id in world.server.journal.refused
        assert ends == 1 or (ends == 0 and (response_id in running or refused))


def stored_stories_fold_and_frame(world: World) -> None:
    """The lifecycle admits one event after the other, so that each beginning of a story is a story too."""
    for response_id in world.disk.grown():
        first, *others = world.disk.events(response_id)
        assert isinstance(first, ResponseCreated)
        response, framer = Response(first), Framer()
        framer.receive(first, response)
        for event in others:
            if isinstance(event, LifecycleEvent):
                response.check(type(event))
            response.apply(event)
            framer.receive(event, response)
        ended = bool(world.disk.ends(response_id))
        assert framer.closed == ended
        assert not (ended and response.output.open_entries)


def nothing_is_stored_that_should_not_be(world: World) -> None:
    """D-30."""
    for known in world.known.values():
        assert known.stored or not world.disk.events(known.id)


def only_committed_turns_are_continued(world: World) -> None:
    """D-12."""
    for known in world.known.values():
        if previous := known.created.previous_response_id:
            assert [type(end) for end in world.disk.ends(previous)] == [TurnCommitted]


# ── at the clients ────────────────────────────────────────────────────────────────────────────────


def clients_are_told_one_end(world: World) -> None:
    """As soon as there is one, and nothing after it."""
    for known in world.known.values():
        told = [number for number, frame in enumerate(known.sent) if frame.endswith(DONE)]
        assert told == ([len(known.sent) - 1] if known.ended else [])


def streams_that_are_read_again_begin_with_what_was_sent(world: World) -> None:
    """As far as they were stored: a crash may lose frames, but it makes no others (D-22)."""
    for known in world.known.values():
        stored = world.disk.events(known.id)[: known.own_versions]
        again = frames(stored, fold(stored)) if stored else []
        assert again == known.sent[: len(again)]


# ── in memory ─────────────────────────────────────────────────────────────────────────────────────


def the_tracker_knows_the_writes_under_way(world: World) -> None:
    """And keeps nothing of any other (R-128, R-130, R-133)."""
    committed = [known for known in world.unsettled if known.committed]
    in_flight = sum(not known.wedged for known in committed)
    marked = sum(known.wedged and known.remembered(world.now_ms) for known in committed)
    sizes = world.server.pending.sizes(now_ms=world.now_ms)
    assert sizes == Sizes(writes=in_flight, markers=marked, expiries=in_flight)
    assert len(world.server.persistence.under_way) == len(world.unsettled)


def instance_ids_are_retained_until_the_hard_limit(world: World) -> None:
    """No shorter (R-355) and no longer (R-356); from then on they are retired until the write settles."""
    committed = [known for known in world.unsettled if known.committed]
    wedged = sum(known.wedged for known in committed)
    pins = world.server.pins
    assert (pins.pinned, pins.retired) == (len(committed) - wedged, wedged)


def memory_keeps_turns_until_their_last_write_has_settled_or_is_wedged(world: World) -> None:
    """No shorter and no longer."""
    kept = {known.id for known in world.unsettled if not known.wedged}
    assert world.server.live.ids == kept | set(world.unended)


def logs_say_how_the_last_write_went(world: World) -> None:
    """Hard timed out if it took too long, persisted if it has landed, nothing else."""
    for known in world.mine:
        if known.committed and known.stored:
            told = [type(recorded.event) for recorded in world.server.journal.handed_over[known.id]]
            assert told[told.index(TurnCommitted) + 1 :] == _how_the_write_went(world, known)


def _how_the_write_went(world: World, known: KnownTurn) -> list[type]:
    journal = world.server.journal
    story: list[type] = [PersistHardTimedOut] if known.wedged else []
    if not journal.holds_end_of(known.id) and not journal.has_refused_end_of(known.id):
        story.append(TurnPersisted)
    return story


def exceptions_are_handled(world: World) -> None:
    """R-361."""
    assert world.server.loop.complaints == []


INVARIANTS = (
    versions_have_no_gap,
    what_was_acknowledged_is_stored,
    a_turn_has_one_end,
    stored_stories_fold_and_frame,
    nothing_is_stored_that_should_not_be,
    only_committed_turns_are_continued,
    clients_are_told_one_end,
    streams_that_are_read_again_begin_with_what_was_sent,
    the_tracker_knows_the_writes_under_way,
    instance_ids_are_retained_until_the_hard_limit,
    memory_keeps_turns_until_their_last_write_has_settled_or_is_wedged,
    logs_say_how_the_last_write_went,
    exceptions_are_handled,
)
