"""What looks the same is the same when it is looked for (T2-14)."""

from unicodedata import category, decomposition, normalize

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from turnlog.domain.audit import folding
from turnlog.domain.audit.folding import folded


@pytest.mark.parametrize(
    ("typed", "written"),
    [
        ("strasse", "Straße"),
        ("STRASSE", "straße"),
        ("ẞ", "ss"),
        ("Köln", "Ko\u0308ln"),
        ("각", "\u1100\u1161\u11a8"),
        ("ABC 123", "\uff21\uff22\uff23\u3000\uff11\uff12\uff13"),
        ("ガ", "\uff76\uff9e"),
        ("office", "o\ufb03ce"),
        ("ΣΊΣΥΦΟΣ", "Σίσυφος"),
        ("cooperate", "co\u00adoperate"),
        ("❤", "❤\ufe0f"),
        ("don't", "don\u2019t"),
        ('"well-known"', "\u201cwell\u2011known\u201d"),
        ("10 km", "10\u00a0km"),
        ("two words", "two\n   words"),
    ],
)
def test_what_people_type_is_what_was_written(typed: str, written: str) -> None:
    assert folded(typed) == folded(written)


@pytest.mark.parametrize(("typed", "written"), [("天気", "天文"), ("resume", "résumé"), ("1-2", "1+2")])
def test_what_looks_different_is_different(typed: str, written: str) -> None:
    assert folded(typed) != folded(written)


@given(st.text())
def test_however_a_text_is_encoded_it_is_folded_to_one_form(text: str) -> None:
    once = folded(text)

    assert folded(once) == once
    assert {folded(normalize(form, text)) for form in ("NFC", "NFD", "NFKC", "NFKD")} == {once}


@given(st.text(min_size=1, max_size=20))
def test_a_long_text_is_folded_in_pieces_as_it_is_at_once(text: str) -> None:
    """T2-05."""
    assume(any(map(folding._starts_anew, text)))
    long = text * 100

    assert folded(long) == folding._folded(long).strip(" ")


def test_nothing_that_starts_a_piece_is_composed_with_what_stands_before_it() -> None:
    """T2-05: asked of all the characters that Unicode composes of two, and of Hangul's vowels and ends."""
    parts = [decomposition(chr(code)).split() for code in range(0x30000)]
    seconds = {chr(int(pair[1], 16)) for pair in parts if len(pair) == 2 and "<" not in pair[0]}

    assert not any(map(folding._starts_anew, seconds | set("\u1161\u1175\u11a8\u11c2")))


@pytest.mark.parametrize("text", ["\u0301\u0316" * 5_000, "a" * 5_000 + "\u0301" * 5_000, "天" * 5_000])
def test_no_piece_has_more_marks_in_a_run_than_python_orders_quickly(text: str) -> None:
    """T2-05: it takes quadratic time, and no other thread of the server runs meanwhile."""
    pieces = list(folding._pieces(text))

    assert "".join(pieces) == text
    assert max(sum(category(each) == "Mn" for each in piece) for piece in pieces) <= 128
