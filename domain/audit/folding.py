"""The form in which texts are compared when one is looked for in others; what is shown is never folded."""

from collections.abc import Iterator
from unicodedata import category, normalize

_UNSEEN = (
    *(0xAD, 0x34F, 0x61C, 0x115F, 0x1160, 0x3164, 0xFEFF, 0xFFA0),
    *range(0x17B4, 0x17B6),
    *range(0x180B, 0x1810),
    *range(0x200B, 0x2010),
    *range(0x202A, 0x202F),
    *range(0x2060, 0x2070),
    *range(0xFE00, 0xFE10),
    *range(0x1BCA0, 0x1BCA4),
    *range(0x1D173, 0x1D17B),
    *range(0xE0000, 0xE1000),
)
"""Signs that are not seen, such as soft hyphens and joiners (Unicode, Default_Ignorable_Code_Point)."""

_ALIKE: dict[int, str | None] = {
    **dict.fromkeys(_UNSEEN),
    # Keyboards have one of each; models write the others.
    **dict.fromkeys(range(0x2018, 0x201C), "'"),
    **dict.fromkeys(range(0x201C, 0x2020), '"'),
    **dict.fromkeys((*range(0x2010, 0x2016), 0x2212), "-"),
}


_PIECE_CHARACTERS = 64
_ASCII_CHARACTERS = 1024
"""A text is folded in pieces of about this length. Python orders a run of combining marks in quadratic time,
and all its other threads wait meanwhile: of 100,000 marks, for ten seconds."""


def folded(text: str) -> str:
    """The text in a form that is the same for all texts that look the same, and for upper and lower case.

    Compatibility forms (full-width, ligatures, half-width kana), composed and decomposed letters, typographic
    quotes and dashes; ß is ss. A run of white space is one space, and none is at the ends.
    """
    return "".join(map(_folded, _pieces(text))).strip(" ")


def _folded(piece: str) -> str:
    if not piece.isascii():
        piece = normalize("NFKC", normalize("NFKC", piece).translate(_ALIKE))
        piece = normalize("NFKC", normalize("NFD", piece).casefold()).translate(_ALIKE)
    # SQLite's tokenizer reads no further than a NUL.
    piece = piece.lower().replace("\0", " ")
    words = " ".join(piece.split())
    return f"{words} " if piece[-1:].isspace() else words


def _pieces(text: str) -> Iterator[str]:
    """The text cut where the parts are folded as they are together; in the midst of 64 marks, anywhere."""
    begin = 0
    while begin < len(text):
        is_ascii = text[begin : begin + _ASCII_CHARACTERS].isascii()
        least = begin + (_ASCII_CHARACTERS if is_ascii else _PIECE_CHARACTERS)
        most = least + _PIECE_CHARACTERS
        end = next((at for at in range(least, min(most, len(text))) if _starts_anew(text[at])), most)
        yield text[begin:end]
        begin = end


def _starts_anew(character: str) -> bool:
    """Whether a character is joined to none before it: no mark, space, unseen sign or vowel of Hangul."""
    seen = normalize("NFKD", character).translate(_ALIKE)
    if not seen or seen[0] <= " " or seen[0].isspace():
        return False
    return category(seen[0])[0] != "M" and not "\u1160" <= seen[0] <= "\u11ff"
