"""Markers are found wherever a text is cut, and each character costs the same whatever they are."""

import sys
from collections.abc import Callable, Iterable
from itertools import pairwise
from types import FrameType
from typing import Any

from hypothesis import assume, example, given
from hypothesis import strategies as st

from turnlog.domain import markers as module
from turnlog.domain.markers import MarkerScanner, MarkerSet

markers = st.lists(st.text("ab<", min_size=1, max_size=4), max_size=4)


def scanned(wanted: Iterable[str], pieces: Iterable[str]) -> list[tuple[str, str]]:
    """Each marker with the text before it; last the text after them."""
    scanner = MarkerScanner(MarkerSet(wanted))
    found, passed = [], ""
    for piece in pieces:
        text, marker, end = scanner.scan(piece)
        while marker:
            found.append((passed + text, marker))
            text, marker, end = scanner.scan(piece, end)
            passed = ""
        passed += text
    return [*found, (passed + scanner.flush(), "")]


def searched(wanted: Iterable[str], text: str) -> list[tuple[str, str]]:
    """The same by looking at every beginning of the text."""
    for end in range(1, len(text) + 1):
        ending = [marker for marker in wanted if text[:end].endswith(marker)]
        if ending:
            longest = max(ending, key=len)
            return [(text[: end - len(longest)], longest), *searched(wanted, text[end:])]
    return [(text, "")]


@given(markers, st.text("ab<", max_size=12), st.data())
@example(["aab", "ab<", "b"], "aab<ab<", None)
def test_where_the_text_is_cut_changes_nothing(
    wanted: list[str], text: str, data: st.DataObject | None
) -> None:
    """R-272: markers that overlap, contain or begin each other among them."""
    cuts = data.draw(st.sets(st.integers(0, len(text)))) if data else set(range(len(text)))
    pieces = [text[a:b] for a, b in pairwise([0, *sorted(cuts), len(text)])]

    assert scanned(wanted, pieces) == searched(wanted, text)


@given(markers, st.text("ab<", max_size=12))
def test_only_the_beginning_of_a_marker_is_held_back(wanted: list[str], text: str) -> None:
    """R-271: everything else is visible at once."""
    scanner = MarkerScanner(MarkerSet(wanted))

    passed, marker, end = scanner.scan(text)
    assume(not marker)

    beginnings = {each[:size] for each in wanted for size in range(len(each))}
    held = max((each for each in beginnings if text.endswith(each)), key=len, default="")
    assert (passed, end) == (text.removesuffix(held), len(text))
    assert (scanner.flush(), scanner.flush()) == (held, "")


def lines_run(work: Callable[[], object]) -> int:
    """How many lines of the module are executed."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        count += event == "line" and frame.f_code.co_filename == module.__file__
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def test_text_that_almost_has_long_markers_costs_no_more_than_other_text() -> None:
    """Reliability, finding 10: a model can write text that makes the obvious search quadratic."""
    almost = MarkerSet([*("a" * size + "b" for size in range(200, 216)), "<" * 256, "ab" * 100 + "c"])

    for text in ("a" * 3_000, "<a" * 1_500, "ab" * 1_500):
        whole, single = MarkerScanner(almost), MarkerScanner(almost)
        assert lines_run(lambda: whole.scan(text)) < 15 * len(text)  # noqa: B023 - called at once
        assert lines_run(lambda: [single.scan(char) for char in text]) < 25 * len(text)  # noqa: B023
