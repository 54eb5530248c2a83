"""The lock between inference and the freeing of memory (R-053, R-054)."""

from functools import partial

from tests.app.models.entered import Entered
from turnlog.app.models.gate import Gate


def test_readers_overlap(entered: Entered) -> None:
    """R-053, G-029."""
    gate = Gate()

    for name in ("first", "second"):
        gate.read(partial(entered, name))

    assert entered.names == ["first", "second"]


def test_a_writer_waits_for_the_readers_and_goes_before_those_that_came_after_it(entered: Entered) -> None:
    """R-053, R-054, G-028."""
    gate = Gate()
    inside = [gate.read(lambda: entered("reader")) for _ in range(2)]
    writer = gate.write(lambda: entered("writer"))
    gate.read(lambda: entered("late reader"))

    inside[0].leave()
    assert entered.names == ["reader", "reader"]
    inside[1].leave()
    assert entered.names == ["reader", "reader", "writer"]
    gate.read(lambda: entered("later reader"))
    assert entered.names == ["reader", "reader", "writer"]
    writer.leave()

    assert entered.names == ["reader", "reader", "writer", "late reader", "later reader"]


def test_waiting_readers_go_in_only_when_no_writer_waits(entered: Entered) -> None:
    """R-054: writers in order of arrival, then the readers together."""
    gate = Gate()
    first = gate.write(lambda: entered("first writer"))
    for _ in range(2):
        gate.read(lambda: entered("reader"))
    second = gate.write(lambda: entered("second writer"))

    first.leave()
    assert entered.names == ["first writer", "second writer"]
    second.leave()

    assert entered.names == ["first writer", "second writer", "reader", "reader"]


def test_who_gives_up_waiting_holds_nobody_up(entered: Entered) -> None:
    """R-035, R-054: neither a writer nor a reader."""
    gate = Gate()
    reader = gate.read(lambda: entered("reader"))
    writer = gate.write(lambda: entered("writer"))
    left = gate.read(lambda: entered("left"))
    gate.read(lambda: entered("late reader"))

    left.leave()
    writer.leave()
    assert entered.names == ["reader", "late reader"]

    reader.leave()
    assert entered.names == ["reader", "late reader"]


def test_leaving_twice_is_leaving_once(entered: Entered) -> None:
    """R-035."""
    gate = Gate()
    first = gate.read(lambda: entered("first"))
    gate.read(lambda: entered("second"))
    gate.write(lambda: entered("writer"))

    first.leave()
    first.leave()

    assert entered.names == ["first", "second"]
