"""Who makes room when there are too many connections."""

from turnlog.adapters.crowd import LEAST_IDLE_S, Crowd

MOST, MOST_STRANGERS = 4, 2
LATER_S = 10.0


class Guests:
    """Connections by their names, and which of them were closed."""

    def __init__(self) -> None:
        self.crowd = Crowd(MOST, MOST_STRANGERS)
        self.closed: list[str] = []
        self._made: dict[str, Guest] = {}

    def come(self, *names: str, now_s: float = 0.0, known: bool = False) -> None:
        for name in names:
            self._made[name] = Guest(name, self.closed)
            self.crowd.enter(self._made[name], now_s)
            if known:
                self.crowd.admit(self._made[name])

    def __getitem__(self, name: str) -> "Guest":
        return self._made[name]


class Guest:
    def __init__(self, name: str, closed: list[str]) -> None:
        self._name = name
        self._closed = closed

    def leave(self) -> None:
        """Note it."""
        self._closed.append(self._name)


def test_beyond_their_share_strangers_make_room_for_strangers() -> None:
    guests = Guests()
    guests.come("known", known=True)
    guests.come("a", "b")

    guests.come("c", now_s=LATER_S)

    assert guests.closed == ["a"]
    assert (guests.crowd.strangers.in_use(), guests.crowd.strangers.reached) == (2, 1)
    assert guests.crowd.open.reached == 0


def test_when_full_the_longest_idle_one_goes_first_and_strangers_before_others() -> None:
    guests = Guests()
    guests.come("a", "b", "c", known=True)
    guests.come("stranger")
    guests.crowd.works(guests["a"])
    guests.crowd.idles(guests["a"], 1.0)

    guests.come("d", now_s=LATER_S, known=True)
    guests.come("e", now_s=LATER_S, known=True)
    guests.come("f", now_s=LATER_S, known=True)

    assert guests.closed == ["stranger", "b", "c"]
    assert (guests.crowd.open.in_use(), guests.crowd.open.reached, guests.crowd.surplus) == (MOST, 3, 0)


def test_who_is_served_never_makes_room() -> None:
    guests = Guests()
    guests.come("a", "b", "c", "d", known=True)
    for name in "abcd":
        guests.crowd.works(guests[name])

    guests.come("e", now_s=LATER_S)

    assert (guests.closed, guests.crowd.surplus) == ([], 1)


def test_a_burst_is_not_idle_before_its_requests_are_read() -> None:
    guests = Guests()
    guests.come("a", "b", "c", "d")
    assert guests.closed == []

    guests.come("e", now_s=LEAST_IDLE_S)

    assert guests.closed == ["a", "b", "c"]


def test_who_has_left_is_forgotten() -> None:
    guests = Guests()
    guests.come("a", "b", known=True)
    guests.come("c", "d")
    for name in "abcda":
        guests.crowd.exit(guests[name])
        guests.crowd.idles(guests[name], 0.0)
        guests.crowd.admit(guests[name])

    guests.come("e", now_s=LATER_S)

    assert (guests.closed, guests.crowd.open.in_use(), guests.crowd.strangers.in_use()) == ([], 1, 1)
