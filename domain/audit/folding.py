"""The form in which texts are compared when one is looked for in others; what is shown is never folded."""

from unicodedata import normalize

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


def folded(text: str) -> str:
    """The text in a form that is the same for all texts that look the same, and for upper and lower case.

    Compatibility forms (full-width, ligatures, half-width kana), composed and decomposed letters, typographic
    quotes and dashes; ß is ss. A run of white space is one space, and none is at the ends.
    """
    if not text.isascii():
        text = normalize("NFKC", normalize("NFKC", text).translate(_ALIKE))
        text = normalize("NFKC", normalize("NFD", text).casefold()).translate(_ALIKE)
    # SQLite's tokenizer reads no further than a NUL.
    return " ".join(text.lower().replace("\0", " ").split())
