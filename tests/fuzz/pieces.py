"""Texts made of bytes, so that a fuzzer which knows only bytes finds its way among words."""

from itertools import pairwise


def text_of(given: bytes, words: tuple[str, ...]) -> tuple[str, list[int]]:
    """A text of words and characters, and places to cut it at. A high byte is a word, or a cut."""
    text = ""
    cuts = []
    for byte in given:
        if byte < 0x80:
            text += chr(byte)
        elif byte < 0xC0:
            cuts.append(len(text))
        elif byte < 0xF0:
            text += words[(byte - 0xC0) % len(words)]
        else:
            text += "é😀\u2028\0"[byte % 4]
    return text, cuts


def cut(text: str, cuts: list[int]) -> list[str]:
    """The text in pieces."""
    return [text[start:end] for start, end in pairwise([0, *cuts, len(text)])]
