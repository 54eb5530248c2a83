"""What looks the same is the same when it is looked for (T2-14)."""

from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
