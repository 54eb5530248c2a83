"""One turn while it runs: sampled tokens in, outputs out.

What the tokens mean beyond plain text, thinking and tool calls, is to be told apart here, in `_say`.
"""

import logging
from time import perf_counter
from typing import Any

from adapters.mlx.cache import MlxCache
from domain.ports import Cancelled, Deliver, End, EngineFailed, EngineOutput, Submission, TextChunk
from domain.usage import Timing

_log = logging.getLogger(__name__)


class LiveTurn:
    """A turn in the batch. `alone` says whether no other turn has been there with it.

    Args:
        detokenizer: a fresh streaming one of `mlx_lm`.
        submitted_s: when the turn was submitted, on the clock of `perf_counter`.
    """

    def __init__(
        self, submission: Submission, deliver: Deliver, detokenizer: Any, submitted_s: float
    ) -> None:
        self.turn_id = submission.turn_id
        self.alone = True
        self._deliver = deliver
        self._detokenizer = detokenizer
        self._said: list[str] = []
        self._output_ids: list[int] = []
        self._prompt_tokens = len(submission.prompt.ids)
        self._cached_tokens = 0
        self._submitted_s = submitted_s
        self._started_s = self._first_s = self._last_s = submitted_s

    def started(self, cached_tokens: int) -> None:
        """The turn is in the batch, with so much of its prompt known already."""
        self._cached_tokens = cached_tokens
        self._started_s = perf_counter()

    def receive(self, token: int, *, ends: bool) -> None:
        """Take the next sampled token; one that `ends` the answer is counted but not said."""
        self._last_s = perf_counter()
        if not self._output_ids:
            self._first_s = self._last_s
        self._output_ids.append(token)
        if not ends:
            self._detokenizer.add_token(token)
            self._say(self._detokenizer.last_segment)

    def finish(self, reason: str, cache: MlxCache) -> None:
        """The model stopped by itself ("stop") or ran out of its budget ("length").

        `output_ids` are all sampled ids, the end token included: prompt and output together are what the
        cache has read, and what the next prompt repeats.
        """
        self._detokenizer.finalize()
        self._say(self._detokenizer.last_segment)
        self._send(
            End(
                finish_reason="stop" if reason == "stop" else "length",
                text="".join(self._said),
                prompt_tokens=self._prompt_tokens,
                output_tokens=len(self._output_ids),
                cached_tokens=self._cached_tokens,
                timing=self._timing(),
                output_ids=tuple(self._output_ids),
                alone=self.alone,
                cache=cache,
            )
        )

    def cancel(self, cache: MlxCache | None = None) -> None:
        """The turn was taken out before its end."""
        self._send(Cancelled(cache))

    def fail(self, error: Exception) -> None:
        """The engine could not go on with the turn."""
        self._send(EngineFailed(f"{type(error).__name__}: {error}"))

    def _say(self, text: str) -> None:
        if text:
            self._said.append(text)
            self._send(TextChunk(text))

    def _send(self, output: EngineOutput) -> None:
        try:
            self._deliver(output)
        except Exception:
            # Whoever takes the outputs may break; the other turns of the batch must not suffer for it.
            _log.exception("an output of turn %s could not be delivered", self.turn_id)

    def _timing(self) -> Timing:
        return Timing(
            first_token_ms=(self._first_s - self._submitted_s) * 1000,
            prefill_tokens_per_s=_rate(
                self._prompt_tokens - self._cached_tokens, self._first_s - self._started_s
            ),
            # The first token comes out of the prefill.
            decode_tokens_per_s=_rate(len(self._output_ids) - 1, self._last_s - self._first_s),
        )


def _rate(count: int, seconds: float) -> float | None:
    return count / seconds if count and seconds else None
