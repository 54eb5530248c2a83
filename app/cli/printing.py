"""Text of strangers made fit for a terminal: nothing in it can move the cursor or turn the reading order."""

_PICTURES = 0x2400
"""Where Unicode has a picture for each control character."""

# Tabs and line ends are harmless; the others could forge what an auditor sees.
_SHOWN = {
    **{code: chr(_PICTURES + code) for code in range(0x20) if chr(code) not in "\t\n"},
    **{code: f"\\x{code:02x}" for code in range(0x7F, 0xA0)},
    # Embeddings, overrides and isolates: the text would read in another order than it is.
    **{code: f"\\u{code:04x}" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))},
}


def printable(text: str) -> str:
    """The text with every control character as something that can be seen."""
    return text.translate(_SHOWN)
