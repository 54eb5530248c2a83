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

Case = tuple[list[str], list[str]]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Markers, and pieces of a text that is made of their beginnings."""
    wanted = draw(st.lists(st.text("ab<", max_size=4), max_size=4))
    beginnings = ["a", "b", *(each[:size] for each in wanted for size in range(1, len(each) + 1))]
    text = "".join(draw(st.lists(st.sampled_from(beginnings), max_size=6)))
    cuts = draw(st.sets(st.integers(0, len(text))))
    return wanted, [text[a:b] for a, b in pairwise([0, *sorted(cuts), len(text)])]


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
        ending = [marker for marker in wanted if marker and text[:end].endswith(marker)]
        if ending:
            longest = max(ending, key=len)
            return [(text[: end - len(longest)], longest), *searched(wanted, text[end:])]
    return [(text, "")]


@given(cases())
@example((["aab", "ab<", "b"], list("aab<ab<")))
def test_where_the_text_is_cut_changes_nothing(case: Case) -> None:
    """R-272: markers that overlap, contain or begin each other among them."""
    wanted, pieces = case

    assert scanned(wanted, pieces) == searched(wanted, "".join(pieces))


@given(cases())
def test_only_the_beginning_of_a_marker_is_held_back(case: Case) -> None:
    """R-271: everything else is visible at once."""
    wanted, pieces = case
    text, scanner = "".join(pieces), MarkerScanner(MarkerSet(wanted))

    scans = [scanner.scan(piece) for piece in pieces]
    assume(not any(marker for _, marker, _ in scans))

    beginnings = {each[:size] for each in wanted for size in range(len(each))}
    held = max((each for each in beginnings if text.endswith(each)), key=len, default="")
    visible = text.removesuffix(held)
    assert "".join(passed for passed, _, _ in scans) == visible
    assert (scanner.flush(), scanner.flush()) == (held, "")
    assert scanner.scan(text) == (visible, "", len(text))


def lines_run(work: Callable[[], object], of: str | None = module.__file__) -> int:
    """How many lines of a module are executed."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        count += event == "line" and frame.f_code.co_filename == of
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
