"""Log probabilities of a token, as the API tells them."""

from typing import Any

from turnlog.adapters.mlx.runtime import mx
from turnlog.domain.items import Logprob


class LogprobReader:
    """Reads them for one tokenizer, a `TokenizerWrapper` of `mlx_lm`. Engine thread."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def read(self, token: int, logprobs: mx.array, top: int) -> Logprob:
        """What the token had, and the `top` likeliest in its place, the likeliest first.

        Args:
            logprobs: of the whole vocabulary, shape (V,); only what is read of it is kept.
        """
        likeliest = self._likeliest(logprobs, min(top, logprobs.size))
        value: Any = logprobs[token].item()
        return Logprob(self._text(token), value, likeliest)

    def _likeliest(self, logprobs: mx.array, top: int) -> tuple[tuple[str, float], ...]:
        if top < 1:
            return ()
        ids = mx.argpartition(-logprobs, top - 1)[:top]
        numbers: Any = ids.tolist()
        values: Any = logprobs[ids].tolist()
        found: list[tuple[float, int]] = list(zip(values, numbers, strict=True))
        # A grammar rules tokens out altogether, and JSON knows no infinity.
        ranked = sorted((-value, id_) for value, id_ in found if value > float("-inf"))
        return tuple((self._text(id_), -value) for value, id_ in ranked)

    def _text(self, token: int) -> str:
        # Twice, less once: alone, some tokenizers drop the space a token begins with.
        once = self._tokenizer.decode([token])
        return str(self._tokenizer.decode([token, token])[len(once) :] or once)
