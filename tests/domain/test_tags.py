"""Structural tags and the overlap of streamed and final text (R-271 … R-273, R-282, G-128, G-129)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.domain.test_markers import lines_run
from turnlog.domain import tags
from turnlog.domain.tags import STRUCTURAL_TAGS, TagBuffer, overlap


def visible(*deltas: str) -> str:
    """Everything a buffer lets through of these deltas, the end included."""
    buffer = TagBuffer()
    return "".join([*map(buffer.push, deltas), buffer.flush()])


@pytest.mark.parametrize("tag", STRUCTURAL_TAGS)
def test_no_part_of_a_tag_leaks_however_it_is_split(tag: str) -> None:
    """G-128, R-272."""
    for cut in range(1, len(tag)):
        buffer = TagBuffer()
        assert buffer.push("Hi" + tag[:cut]) + buffer.push(tag[cut:] + "hidden") == "Hi"
        assert buffer.suppressing
        assert buffer.push("more") == ""


def test_what_only_looks_like_a_tag_is_let_through_in_the_end() -> None:
    """G-129, R-275, R-299."""
    buffer = TagBuffer()

    assert buffer.push("5 <") == "5 "
    assert buffer.push(" 10") == "< 10"
    assert buffer.push("<tool") == ""
    assert buffer.flush() == "<tool"


def test_white_space_alone_before_a_tag_is_not_shown() -> None:
    """R-273, G-126."""
    assert visible("\n<tool_call>{}") == ""
    assert visible("Hi \n<tool_call>{}") == "Hi \n"


@pytest.mark.parametrize(
    ("streamed", "final", "expected"),
    [
        ("Hello", "Hello world", 5),
        ("\n\n", "<tool_call>", 0),
        ("Let me check. ", "check. Then", 7),
        ("Let me check.", "Then", 0),
        ("abcab", "cabx", 3),
        ("aaaa", "aa", 2),
        ("", "a", 0),
        ("a", "", 0),
    ],
)
def test_the_overlap_is_the_longest_beginning_of_the_final_text_that_was_streamed_last(
    streamed: str, final: str, expected: int
) -> None:
    """R-282, R-283."""
    assert overlap(streamed, final) == expected


@given(st.text("ab", max_size=12), st.text("ab", max_size=12))
def test_the_overlap_is_what_the_obvious_search_finds(streamed: str, final: str) -> None:
    """R-282."""
    obvious = max(k for k in range(len(final) + 1) if streamed.endswith(final[:k]))

    assert overlap(streamed, final) == obvious


@pytest.mark.parametrize(
    ("streamed", "final", "expected"),
    [
        ("ab" * 50_000, "ab" * 50_000 + "c", 100_000),
        (" " + "ab" * 50_000, "ab" * 50_000, 100_000),
        ("ab" * 50_000, "x" + "ab" * 50_000, 0),
        ("x" + "ab" * 50_000, "ab" * 49_999 + "cb", 100),
    ],
)
def test_a_long_text_is_searched_in_its_nearest_part_only(
    streamed: str, final: str, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T2-05: all of it only where one comparison is enough, as nearly always."""
    monkeypatch.setattr(tags, "SEARCHED_CHARACTERS", 100)
    found = []

    lines = lines_run(lambda: found.append(overlap(streamed, final)), of=tags.__file__)

    assert found == [expected]
    assert lines < 2_000
