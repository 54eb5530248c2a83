"""Log probabilities of a token, as the API tells them."""

from typing import Any

from turnlog.adapters.mlx.runtime import mx
from turnlog.adapters.mlx.tokenbytes import TokenBytes
from turnlog.domain.items import Logprob


class LogprobReader:
    """Reads them for one tokenizer, a `TokenizerWrapper` of `mlx_lm`. Engine thread."""

    def __init__(self, tokenizer: Any, token_bytes: TokenBytes) -> None:
        self._tokenizer = tokenizer
        self._bytes = token_bytes

    def read(self, token: int, logprobs: mx.array, top: int) -> Logprob:
        """What the token had, and the `top` likeliest in its place, the likeliest first.

        Args:
            logprobs: of the whole vocabulary, shape (V,); only what is read of it is kept.
        """
        likeliest = self._likeliest(logprobs, min(top, logprobs.size))
        value: Any = logprobs[token].item()
        raw = tuple(self._raw(id_) for id_, _ in likeliest)
        return Logprob(
            self._text(token),
            value,
            tuple((self._text(id_), logprob) for id_, logprob in likeliest),
            self._raw(token),
            raw if any(raw) else (),
        )

    def _likeliest(self, logprobs: mx.array, top: int) -> tuple[tuple[int, float], ...]:
        if top < 1:
            return ()
        ids = mx.argpartition(-logprobs, top - 1)[:top]
        numbers: Any = ids.tolist()
        values: Any = logprobs[ids].tolist()
        found: list[tuple[float, int]] = list(zip(values, numbers, strict=True))
        # A grammar rules tokens out altogether, and JSON knows no infinity.
        ranked = sorted((-value, id_) for value, id_ in found if value > float("-inf"))
        return tuple((id_, -value) for value, id_ in ranked)

    def _raw(self, token: int) -> bytes:
        return self._bytes.of(token) if "\ufffd" in self._text(token) else b""

    def _text(self, token: int) -> str:
        # Twice, less once: alone, some tokenizers drop the space a token begins with.
        once = self._tokenizer.decode([token])
        return str(self._tokenizer.decode([token, token])[len(once) :] or once)
