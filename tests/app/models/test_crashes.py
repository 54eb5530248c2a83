"""When a model is loaded again after crashes, and which prompt is refused."""

import pytest

from turnlog.app.models.crashes import MOST_CRASHES, PAUSES_S, REFUSAL_S, WINDOW_S, Crashes, LastCrash

NOON_MS = 1_795_000_000_000
TEN_MINUTES_MS = round(WINDOW_S * 1000)


def test_the_pauses_grow_and_the_fifth_crash_within_ten_minutes_is_the_last() -> None:
    crashes = Crashes()

    pauses = [crashes.record("SIGKILL", at_ms=NOON_MS + at) for at in range(MOST_CRASHES)]

    assert pauses == [*PAUSES_S, None]
    assert list(PAUSES_S) == sorted(PAUSES_S)
    assert (crashes.total, crashes.last) == (5, LastCrash(NOON_MS + 4, "SIGKILL"))


def test_crashes_that_are_far_apart_do_not_add_up() -> None:
    crashes = Crashes()

    pauses = [crashes.record("SIGKILL", at_ms=NOON_MS + at * TEN_MINUTES_MS) for at in range(10)]

    assert pauses == [PAUSES_S[0]] * 10


def test_an_operator_who_loads_the_model_begins_a_new_count() -> None:
    crashes = Crashes()
    for _ in range(MOST_CRASHES):
        crashes.record("SIGKILL", at_ms=NOON_MS)

    crashes.forgive()

    assert crashes.record("SIGKILL", at_ms=NOON_MS) == PAUSES_S[0]
    assert crashes.total == MOST_CRASHES + 1


@pytest.mark.parametrize(
    ("blamed", "refused"),
    [
        (["a", "a"], True),
        (["a", "b", "a"], False),
        (["a", None, "a"], False),
        (["a"], False),
        (["b", "a", "a"], True),
    ],
)
def test_a_prompt_that_was_alone_at_two_crashes_in_a_row_is_refused(
    blamed: list[str | None], refused: bool
) -> None:
    crashes = Crashes()

    for prompt in blamed:
        crashes.blame(prompt, at_ms=NOON_MS)

    until_ms = NOON_MS + round(REFUSAL_S * 1000)
    assert crashes.refused_until_ms("a", now_ms=NOON_MS) == (until_ms if refused else None)
    assert crashes.refused_until_ms("b", now_ms=NOON_MS) is None
    assert crashes.refused_until_ms("a", now_ms=until_ms) is None
