"""The lock between inference and the freeing of memory (R-053, R-054)."""

from functools import partial

from tests.app.models.acquired import Entered
from turnlog.app.models.gate import Gate


def test_readers_overlap(acquired: Entered) -> None:
    """R-053, G-029."""
    gate = Gate()

    for name in ("first", "second"):
        gate.read(partial(acquired, name))

    assert acquired.names == ["first", "second"]


def test_a_writer_waits_for_the_readers_and_goes_before_those_that_came_after_it(acquired: Entered) -> None:
    """R-053, R-054, G-028."""
    gate = Gate()
    inside = [gate.read(lambda: acquired("reader")) for _ in range(2)]
    writer = gate.write(lambda: acquired("writer"))
    gate.read(lambda: acquired("late reader"))

    inside[0].release()
    assert acquired.names == ["reader", "reader"]
    inside[1].release()
    assert acquired.names == ["reader", "reader", "writer"]
    gate.read(lambda: acquired("later reader"))
    assert acquired.names == ["reader", "reader", "writer"]
    writer.release()

    assert acquired.names == ["reader", "reader", "writer", "late reader", "later reader"]


def test_waiting_readers_go_in_only_when_no_writer_waits(acquired: Entered) -> None:
    """R-054: writers in order of arrival, then the readers together."""
    gate = Gate()
    first = gate.write(lambda: acquired("first writer"))
    for _ in range(2):
        gate.read(lambda: acquired("reader"))
    second = gate.write(lambda: acquired("second writer"))

    first.release()
    assert acquired.names == ["first writer", "second writer"]
    second.release()

    assert acquired.names == ["first writer", "second writer", "reader", "reader"]


def test_who_gives_up_waiting_holds_nobody_up(acquired: Entered) -> None:
    """R-035, R-054: neither a writer nor a reader."""
    gate = Gate()
    reader = gate.read(lambda: acquired("reader"))
    writer = gate.write(lambda: acquired("writer"))
    left = gate.read(lambda: acquired("left"))
    gate.read(lambda: acquired("late reader"))

    left.release()
    writer.release()
    assert acquired.names == ["reader", "late reader"]

    reader.release()
    assert acquired.names == ["reader", "late reader"]


def test_leaving_twice_is_leaving_once(acquired: Entered) -> None:
    """R-035."""
    gate = Gate()
    first = gate.read(lambda: acquired("first"))
    gate.read(lambda: acquired("second"))
    gate.write(lambda: acquired("writer"))

    first.release()
    first.release()

    assert acquired.names == ["first", "second"]
