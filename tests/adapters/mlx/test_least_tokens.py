"""What a text's length says about its tokens is never more than it has; and special tokens are all found."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

from turnlog.adapters.mlx.least_tokens import LeastTokens
from turnlog.adapters.mlx.special_spans import SpecialSpans

MERGED = ["he", "ll", "hell", "11", "  ", "    ", "é", "é!"]
"""Words of more than one character, made by merges of two."""

BYTES = [f"<0x{byte:02X}>" for byte in range(0x100)]
ADDED = [
    AddedToken("<|a|>", special=True, normalized=False),
    AddedToken("<|ab|>", special=True, normalized=False, lstrip=True),
    AddedToken("<b>", special=False, normalized=False, rstrip=True),
]
BLANKS = [AddedToken("\t\t", normalized=False), AddedToken("<|a|>", normalized=False)]


def byte_level(normalizer: Any = None) -> Tokenizer:
    """As of GPT-2 and its kin; a few bytes are no tokens of it."""
    pre = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    spelt = {word: "".join(piece for piece, _ in pre.pre_tokenize_str(word)) for word in MERGED}
    alphabet = [sign for sign in pre_tokenizers.ByteLevel.alphabet() if sign not in "\u0104ñ"]
    tokenizer = bpe(sorted(alphabet), list(spelt.values()))
    tokenizer.add_tokens(ADDED)
    tokenizer.pre_tokenizer = pre
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    return tokenizer


def sentencepiece() -> Tokenizer:
    """As of Llama 2 and Gemma."""
    words = [word.replace(" ", "▁") for word in MERGED]
    tokenizer = bpe([*BYTES, *sorted(set("".join(words)))], words, byte_fallback=True)
    tokenizer.add_tokens(BLANKS)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return tokenizer


def bpe(letters: list[str], words: list[str], **options: Any) -> Tokenizer:
    merges: list[tuple[str, str]] = []
    vocabulary = list(letters)
    for word in words:
        last = word[0]
        for sign in word[1:]:
            if last + sign not in vocabulary:
                merges.append((last, sign))
                vocabulary.append(last + sign)
            last += sign
    vocab = {word: place for place, word in enumerate(vocabulary)}
    return Tokenizer(models.BPE(vocab=vocab, merges=merges, **options))


TOKENIZERS = {
    "bytes": byte_level(),
    "NFC": byte_level(normalizers.NFC()),
    "NFKC": byte_level(normalizers.NFKC()),
    "pieces": sentencepiece(),
}
TEXTS = st.lists(
    st.sampled_from([*MERGED, "e\u0301", "ﬁ", "世", "🌍", "\x04", " ", "\n", "9", "A", "_"]) | st.text()
)


@pytest.mark.parametrize("name", TOKENIZERS)
@given(text=TEXTS.map("".join))
@example(text="1" * 1_000)
@example(text="e\u0301!" * 100)
def test_no_text_has_fewer_tokens_than_its_length_says(name: str, text: str) -> None:
    tokenizer = TOKENIZERS[name]
    for added in (*ADDED, *BLANKS):
        text = text.replace(added.content, "_")

    least = LeastTokens(json.loads(tokenizer.to_str())).of(text)

    assert least <= len(tokenizer.encode(text, add_special_tokens=False).ids)


@pytest.mark.parametrize("name", TOKENIZERS)
def test_digits_count_although_blanks_may_be_in_long_tokens(name: str) -> None:
    least = LeastTokens(json.loads(TOKENIZERS[name].to_str()))

    assert (least.of("1" * 100), least.of(" " * 100)) == (50, 25)


def test_of_a_tokenizer_whose_tokens_may_stand_for_anything_nothing_is_said() -> None:
    tokenizer = Tokenizer(models.WordLevel(vocab={"?": 0}, unk_token="?"))

    assert LeastTokens(json.loads(tokenizer.to_str())).of("word " * 1_000) == 0


PIECES = st.sampled_from(
    [*(token.content for token in ADDED), "\t\t", "<|", "|>", "<", "a", " ", "\t", "\n", "é"]
)


@pytest.mark.parametrize("name", TOKENIZERS)
@given(text=st.lists(PIECES).map("".join))
def test_special_tokens_are_found_where_the_tokenizer_finds_them(name: str, text: str) -> None:
    tokenizer = TOKENIZERS[name]
    special = set(tokenizer.get_added_tokens_decoder())
    encoding = tokenizer.encode(text, add_special_tokens=False)

    found = SpecialSpans(json.loads(tokenizer.to_str())).find(text)

    assert found == [span for id_, span in zip(encoding.ids, encoding.offsets, strict=True) if id_ in special]
