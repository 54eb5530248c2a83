"""Characters that several tokens write are told whole or not at all; their bytes are told token by token."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders
from tokenizers.models import BPE

from tests.adapters.mlx.asking import Turn, submission
from tests.adapters.mlx.forcing import Mouth, mouth
from tests.tiny_model import CHAT_TEMPLATE
from turnlog.adapters.mlx.tokenbytes import TokenBytes
from turnlog.domain.messages import Message
from turnlog.domain.ports import End, TextChunk

TEXT = "a👩‍👩‍👧 天気é\ufffd."
ASKED = [Message("user", "Hi")]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mouth]:
    with mouth(tmp_path_factory.mktemp("characters"), CHAT_TEMPLATE) as model:
        yield model


def told(model: Mouth, text: str, budget: int, **sampling: Any) -> tuple[list[TextChunk], End]:
    """What a turn tells that says `text` and may say so many tokens of it."""
    turn = Turn()
    prompt = model.engine.render(ASKED)
    model.engine.submit(
        submission(prompt, sampling=model.says(text, **sampling), budget=budget), turn.deliver
    )
    chunks, end = turn.wait()
    assert isinstance(end, End)
    return [chunk for chunk in chunks if isinstance(chunk, TextChunk)], end


@pytest.mark.parametrize("budget", range(1, len(TEXT.encode()) + 1))
def test_an_answer_that_ends_within_a_character_ends_before_it(model: Mouth, budget: int) -> None:
    """T2-12: the text, its deltas and the log; the tokens of the character count."""
    assert model.tokens(TEXT) == len(TEXT.encode())

    chunks, end = told(model, TEXT, budget)

    expected = TEXT.encode()[:budget].decode(errors="ignore")
    assert (end.text, "".join(chunk.text for chunk in chunks)) == (expected, expected)
    assert (end.output_tokens, end.finish_reason) == (budget, "length")


def test_the_bytes_of_the_tokens_are_the_bytes_of_the_text(model: Mouth) -> None:
    """T2-12: also of tokens that are a part of a character."""
    chunks, end = told(model, TEXT, len(TEXT.encode()), top_logprobs=2)

    logprobs = [each for chunk in chunks for each in chunk.logprobs]
    assert b"".join(each.raw or each.token.encode() for each in logprobs).decode() == end.text == TEXT
    assert all(len(each.top_raw) in (0, len(each.top)) for each in logprobs)


@dataclass
class Spelt:
    """A tokenizer as `TokenBytes` uses it."""

    backend_tokenizer: Tokenizer

    def convert_ids_to_tokens(self, token: int) -> str | None:
        return self.backend_tokenizer.id_to_token(token)


def test_tokens_of_a_byte_are_known_where_a_vocabulary_falls_back_on_them() -> None:
    tokenizer = Tokenizer(BPE(vocab={"<0xE5>": 0, "<0xA4>": 1, "<0xA9>": 2, "▁the": 3, "é": 4}, merges=[]))
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    token_bytes = TokenBytes(Spelt(tokenizer))

    assert b"".join(map(token_bytes.of, (0, 1, 2))).decode() == "天"
    ends = [token_bytes.end_within_character(ids) for ids in ((), (3,), (4,), (3, 0), (3, 0, 1), (0, 1, 2))]
    assert ends == [False, False, False, True, True, False]
