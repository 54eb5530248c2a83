"""Making a random model say something: its logits are bent, all the rest is what really runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.tiny_model import make_tiny_model
from turnlog.adapters.mlx import batch
from turnlog.adapters.mlx.engine import MlxEngine
from turnlog.adapters.mlx.model import load
from turnlog.adapters.mlx.runtime import mx
from turnlog.adapters.mlx.sampling import Processor
from turnlog.domain.events import Sampling
from turnlog.domain.ports import Prompt
from turnlog.domain.tokens import TokenIds


class Saying:
    """A logits processor that leaves no choice but to say `ids` first."""

    def __init__(self, ids: TokenIds, prompt_tokens: int) -> None:
        self._ids = ids
        self._prompt_tokens = prompt_tokens

    def __call__(self, tokens: mx.array, logits: mx.array) -> mx.array:
        place = len(tokens) - self._prompt_tokens
        if place >= len(self._ids):
            return logits
        return mx.where(mx.arange(logits.shape[-1]) == self._ids[place], mx.array(0.0), mx.array(-1e9))[None]


class Mouth:
    """An engine on a tiny model, and what its turns say by their seed; a turn of another seed is free."""

    def __init__(self, engine: MlxEngine, tokenizer: Any) -> None:
        self.engine = engine
        self._tokenizer = tokenizer
        self._lines: dict[int, TokenIds] = {}

    def says(self, text: str, **sampling: Any) -> Sampling:
        """The sampling of a turn that says `text`."""
        return self.makes(tuple(self._tokenizer.encode(text, add_special_tokens=False)), **sampling)

    def spells(self, text: str) -> Sampling:
        """The sampling of a turn that says `text`, which has no white space, in one token a letter."""
        return self.makes(tuple(self._tokenizer.convert_tokens_to_ids(letter) for letter in text))

    def makes(self, ids: TokenIds, **sampling: Any) -> Sampling:
        """The sampling of a turn that makes these tokens."""
        seed = len(self._lines) + 1
        self._lines[seed] = ids
        return Sampling(temperature=0.0, top_p=1.0, seed=seed, **sampling)

    def tokens(self, text: str) -> int:
        """How many tokens a text has."""
        return len(self._tokenizer.encode(text, add_special_tokens=False))

    def opens(self, prompt: Prompt) -> bool:
        """Whether a prompt begins the model's thinking."""
        return str(self._tokenizer.decode(list(prompt.ids))).endswith("<think>\n")

    def processors(self, sampling: Sampling, prompt_tokens: int) -> list[Processor]:
        """In place of `penalties`."""
        ids = self._lines.get(sampling.seed)
        return [] if ids is None else [Saying(ids, prompt_tokens)]


@contextmanager
def mouth(folder: Path, template: str) -> Iterator[Mouth]:
    """A `Mouth` on a model with a chat template."""
    model = load(make_tiny_model(folder, template))
    engine = MlxEngine(model)
    found = Mouth(engine, load(folder).tokenizer)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch, "penalties", found.processors)
        yield found
    engine.close()
