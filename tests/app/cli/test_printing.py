"""Texts of strangers on a terminal."""

from turnlog.app.cli.printing import printable


def test_a_text_cannot_take_over_the_terminal() -> None:
    """An answer must not be able to clear the screen, or to look like other lines of the log."""
    assert printable("a\tb\nc\x1b[2J\r\x00\x7f\x9b\u202egnp") == "a\tb\nc␛[2J␍␀\\x7f\\x9b\\u202egnp"
    assert printable("Zürich 東京 🙂") == "Zürich 東京 🙂"
