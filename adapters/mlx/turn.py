"""One running turn: sampled tokens in, outputs out. `OutputParser` interprets the tokens."""

from collections import deque
from collections.abc import Iterable
from time import perf_counter
from typing import Any

from msgspec.structs import asdict

from turnlog.adapters.mlx.cache import MlxCache
from turnlog.adapters.mlx.constraints import ConstraintLostError
from turnlog.adapters.mlx.output_parser import OutputParser
from turnlog.adapters.mlx.tokenbytes import MOST_TOKENS_OF_A_CHARACTER, TokenBytes
from turnlog.domain.items import Logprob
from turnlog.domain.ports import (
    Cancelled,
    Deliver,
    End,
    EngineChunk,
    EngineFailed,
    FinishReason,
    Submission,
    TurnStats,
)
from turnlog.domain.usage import Timing


class BatchedTurn:
    """A turn in the batch. `unbatched` stays true while no other turn has shared the batch with it.

    Args:
        parser: a fresh one, for this turn's text.
        detokenizer: a fresh streaming one of `mlx_lm`.
        token_bytes: those of the same tokenizer.
        submitted_s: when the turn was submitted, on the clock of `perf_counter`.
    """

    def __init__(
        self,
        submission: Submission,
        deliver: Deliver,
        parser: OutputParser,
        detokenizer: Any,
        token_bytes: TokenBytes,
        *,
        submitted_s: float,
    ) -> None:
        self.turn_id = submission.turn_id
        self.unbatched = True
        self._deliver = deliver
        self._parser = parser
        self._detokenizer = detokenizer
        self._bytes = token_bytes
        self._last_visible: deque[int] = deque(maxlen=MOST_TOKENS_OF_A_CHARACTER)
        self._output_ids: list[int] = []
        self._reasoning_tokens = 0
        self._prompt_tokens = len(submission.prompt.ids)
        self._cached_tokens = 0
        self._submitted_s = submitted_s
        self._started_s = self._first_s = self._last_s = submitted_s

    @property
    def stopped(self) -> bool:
        """Whether a stop text has ended the answer: no more tokens are wanted."""
        return self._parser.stopped

    def started(self, cached_tokens: int) -> None:
        """The turn is in the batch, with `cached_tokens` of its prompt already computed."""
        self._cached_tokens = cached_tokens
        self._started_s = perf_counter()

    def receive(self, token: int, logprob: Logprob | None = None, *, ends: bool) -> None:
        """Take the next sampled token; one that `ends` the answer is counted but not shown."""
        self._last_s = perf_counter()
        if not self._output_ids:
            self._first_s = self._last_s
        self._output_ids.append(token)
        if ends:
            return
        thought = self._parser.thinks
        self._detokenizer.add_token(token)
        self._last_visible.append(token)
        self._emit(self._parser.receive(self._detokenizer.last_segment, logprob))
        # The markers around the reasoning count as well: they are part of the client's token budget.
        self._reasoning_tokens += thought or self._parser.thinks

    def finish(self, reason: str, cache: MlxCache) -> None:
        """The model stopped by itself ("stop") or ran out of its budget ("length").

        `output_ids` are all sampled ids, the end token included: the next prompt repeats prompt and output
        together. The cache covers all of that, or all but the last id (decision 0013).
        """
        self._detokenizer.finalize()
        rest = self._detokenizer.last_segment
        if self._bytes.end_within_character(self._last_visible):
            # An incomplete character is not text (T2-12).
            rest = rest.rstrip("\ufffd")
        self._emit(self._parser.receive(rest))
        self._emit(self._parser.end())
        self._deliver(
            End(
                finish_reason=self._finish_reason(reason),
                text=self._parser.text,
                thinking=self._parser.thought,
                tool_calls=self._parser.calls,
                cache=cache,
                **asdict(self._stats()),
            )
        )

    def cancel(self, cache: MlxCache | None = None) -> None:
        """The turn was removed before its end."""
        self._deliver(Cancelled(cache, self._stats()))

    def fail(self, error: Exception) -> None:
        """The engine could not go on with the turn."""
        self._deliver(failed(error, self._stats()))

    def _finish_reason(self, reason: str) -> FinishReason:
        if reason != "stop" and not self._parser.stopped:
            return "length"
        return "tool_calls" if any(call.status == "ok" for call in self._parser.calls) else "stop"

    def _emit(self, chunks: Iterable[EngineChunk]) -> None:
        for chunk in chunks:
            self._deliver(chunk)

    def _stats(self) -> TurnStats:
        return TurnStats(
            prompt_tokens=self._prompt_tokens,
            output_tokens=len(self._output_ids),
            cached_tokens=self._cached_tokens,
            reasoning_tokens=self._reasoning_tokens,
            timing=self._timing(),
            output_ids=tuple(self._output_ids),
            unbatched=self.unbatched,
        )

    def _timing(self) -> Timing:
        if not self._output_ids:
            return Timing()
        return Timing(
            first_token_ms=(self._first_s - self._submitted_s) * 1000,
            prefill_tokens_per_s=_rate(
                self._prompt_tokens - self._cached_tokens, self._first_s - self._started_s
            ),
            # The first token comes out of the prefill.
            decode_tokens_per_s=_rate(len(self._output_ids) - 1, self._last_s - self._first_s),
        )


def failed(error: Exception, stats: TurnStats | None = None) -> EngineFailed:
    """The output that reports an exception in the engine."""
    if isinstance(error, ConstraintLostError):
        return EngineFailed(str(error), stats, constraint_lost=True)
    return EngineFailed(f"{type(error).__name__}: {error}", stats)


def _rate(count: int, seconds: float) -> float | None:
    return count / seconds if count and seconds else None
