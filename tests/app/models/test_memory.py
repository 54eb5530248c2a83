"""One budget of memory: who is granted what, in which order, and what is given up for it."""

import pytest

from turnlog.app.models.memory import Memory, MemoryReservation


class Granted:
    """Claims by name, and who was granted one, in order."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self.names: list[str] = []

    def ask(self, name: str, count_bytes: int) -> MemoryReservation:
        """Ask for the memory of a turn."""
        return self._memory.ask("running", count_bytes, lambda: self.names.append(name))


class Warm:
    """Something that can be given up: so many bytes of warm caches."""

    def __init__(self, memory: Memory, count_bytes: int) -> None:
        reservation = memory.take("warm", count_bytes)
        assert reservation
        self._reservation = reservation
        self.asked: list[int] = []

    def reclaim(self, missing_bytes: int) -> int:
        """Give up as much as is missing, or all of it."""
        self.asked.append(missing_bytes)
        given_up = min(missing_bytes, self._reservation.count_bytes)
        self._reservation.resize(self._reservation.count_bytes - given_up)
        return missing_bytes - given_up


def test_what_fits_is_granted_at_once_and_counted_by_its_use() -> None:
    memory = Memory(100)
    told = Granted(memory)

    weights = memory.take("weights", 60)
    running = told.ask("turn", 30)
    refused = memory.take("warm", 11)
    warm = memory.take("warm", 10)

    assert (told.names, refused) == (["turn"], None)
    assert (dict(memory.used), memory.free_bytes) == ({"weights": 60, "running": 30, "warm": 10}, 0)
    for reservation in (weights, running, warm):
        assert reservation
        reservation.release()
        reservation.release()
    assert (dict(memory.used), memory.free_bytes) == ({"weights": 0, "running": 0, "warm": 0}, 100)


def test_without_a_budget_everything_is_granted() -> None:
    memory = Memory(None)
    told = Granted(memory)

    told.ask("turn", 10**15)

    assert memory.take("weights", 10**15)
    assert (told.names, memory.free_bytes, memory.is_waited_for) == (["turn"], float("inf"), False)


def test_a_claim_is_corrected_by_what_was_really_taken() -> None:
    """Less than was asked for lets in who waits."""
    memory = Memory(100)
    told = Granted(memory)
    weights = memory.take("weights", 80)
    assert weights
    told.ask("turn", 30)
    assert (told.names, memory.is_waited_for) == ([], True)

    weights.resize(70)

    assert (told.names, memory.is_waited_for) == (["turn"], False)
    assert dict(memory.used) == {"weights": 70, "running": 30}


def test_a_big_claim_is_not_passed_by_small_ones_while_turns_hold_what_it_needs() -> None:
    """docs/decisions/0009: else it would never come to its memory."""
    memory = Memory(100)
    told = Granted(memory)
    running = told.ask("running", 60)

    told.ask("big", 80)
    told.ask("small", 10)
    assert (told.names, memory.take("warm", 1)) == (["running"], None)
    running.release()

    assert told.names == ["running", "big", "small"]
    assert dict(memory.used) == {"running": 90}


def test_a_claim_that_waits_for_a_model_to_become_idle_is_passed() -> None:
    """docs/decisions/0009: the turns that wait behind it may be those that keep the model busy."""
    memory = Memory(100)
    told = Granted(memory)
    weights = memory.take("weights", 60)
    assert weights
    told.ask("big", 80)

    told.ask("small", 10)
    assert told.names == ["small"]
    weights.release()

    assert told.names == ["small", "big"]
    assert dict(memory.used) == {"weights": 0, "running": 90}


def test_one_that_gives_up_waiting_lets_those_behind_it_pass() -> None:
    """R-035: and it is not granted later."""
    memory = Memory(100)
    told = Granted(memory)
    running = told.ask("running", 60)
    big = told.ask("big", 80)
    told.ask("small", 10)

    big.release()
    assert told.names == ["running", "small"]
    running.release()
    big.release()

    assert (told.names, dict(memory.used)) == (["running", "small"], {"running": 10})


def test_what_is_missing_is_asked_back_once_it_is_needed_and_not_before() -> None:
    memory = Memory(100)
    told = Granted(memory)
    warm = Warm(memory, 50)
    memory.reclaim_by(warm.reclaim)

    assert memory.take("warm", 60) is None
    told.ask("fits", 50)
    assert warm.asked == []
    told.ask("does not", 20)

    assert (told.names, warm.asked) == (["fits", "does not"], [20])
    assert dict(memory.used) == {"warm": 30, "running": 70}


def test_whether_the_end_of_the_running_turns_makes_room() -> None:
    """docs/decisions/0009: what can be given up counts, and is given up."""
    memory = Memory(100)
    told = Granted(memory)
    memory.take("weights", 40)
    told.ask("running", 30)
    warm = Warm(memory, 20)
    memory.reclaim_by(warm.reclaim)

    suffices = [memory.suffices_after_turns(count_bytes) for count_bytes in (10, 30, 60, 61)]

    assert suffices == [True, True, True, False]
    assert dict(memory.used) == {"weights": 40, "running": 30, "warm": 0}


def test_who_is_let_in_may_ask_and_give_back_at_once() -> None:
    """Whoever is granted a reservation acts on the budget in the middle of its own grant."""
    memory = Memory(100)
    told = Granted(memory)
    running = told.ask("running", 100)

    def ask_more() -> None:
        told.names.append("let in")
        told.ask("asked meanwhile", 50)

    memory.ask("running", 50, ask_more)
    running.release()

    assert (told.names, dict(memory.used)) == (["running", "let in", "asked meanwhile"], {"running": 100})


@pytest.mark.parametrize("budget_bytes", [0, 5])
def test_what_takes_nothing_is_always_granted(budget_bytes: int) -> None:
    """A scripted engine's turns take no memory, and must not wait for any."""
    memory = Memory(budget_bytes)
    told = Granted(memory)
    memory.take("weights", budget_bytes)

    told.ask("turn", 0)

    assert told.names == ["turn"]
