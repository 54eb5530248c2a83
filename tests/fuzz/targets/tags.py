"""Target: structural tags. However a text is cut, the same of it is visible, and no tag ever is."""

from tests.fuzz.pieces import cut, text_of
from turnlog.domain.tags import STRUCTURAL_TAGS, Eraser, TagBuffer, overlap


def one(given: bytes) -> None:
    """Judge one text."""
    text, cuts = text_of(given, STRUCTURAL_TAGS)
    pieces = cut(text, cuts)

    assert _visible(pieces).strip() == _visible([text]).strip()
    assert not any(tag in _visible(pieces) for tag in STRUCTURAL_TAGS)
    eraser = Eraser(STRUCTURAL_TAGS[0])
    erased = "".join([*map(eraser.push, pieces), eraser.flush()])
    assert erased == text.replace(STRUCTURAL_TAGS[0], "")
    shared = overlap(text, pieces[-1] if pieces else "")
    assert text.endswith((pieces[-1] if pieces else "")[:shared])


def _visible(pieces: list[str]) -> str:
    buffer = TagBuffer()
    return "".join([*map(buffer.push, pieces), buffer.flush()])
