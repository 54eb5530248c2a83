"""Half a surrogate pair is read as U+FFFD, and nothing else changes (T2-10)."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlog.domain import characters
from turnlog.domain.characters import read_json
from turnlog.domain.tools import custom_input

_texts = st.text(
    st.sampled_from([*'a\\u"dD8f9\n天🙂', *(chr(0xD800 + at) for at in (0, 0x3FF, 0x400, 0x7FF))])
)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (r'"a \ud83d b"', "a � b"),
        (r'"a \ude42"', "a �"),
        (r'"\ud83d\ud83d\ude42"', "�🙂"),
        (r'"\ude42\ud83d"', "��"),
        (r'"\ud83d\ude42"', "🙂"),
        (r'"\\ud83d"', "\\ud83d"),
        (r'"\\\ud83d"', "\\�"),
        (r'{"\uD83D": ["\uDE42", 1.5, null]}', {"�": ["�", 1.5, None]}),
    ],
)
def test_half_a_surrogate_pair_is_read_as_the_replacement_character(written: str, read: object) -> None:
    assert read_json(written) == read


@given(_texts)
def test_what_is_read_is_what_a_whatwg_encoder_writes(text: str) -> None:
    expected = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")

    assert read_json(json.dumps([text])) == [expected]


def test_a_long_text_is_made_whole_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """T2-05: no one step of it is long, as it takes Python's lock."""
    monkeypatch.setattr(characters, "_PIECE_CHARACTERS", 1)

    assert read_json(r'"\ufeff\ud83d🙂\ud83d\ude42\ude42天"') == "\ufeff�🙂🙂�天"


def test_the_input_of_a_custom_tool_has_whole_characters() -> None:
    assert custom_input(r'{"input": "a \ud83d"}') == "a �"
