"""The turns that run at the moment, decoded together by one `BatchGenerator`.

Everything here happens on the engine thread. One turn alone takes the same path as many.
"""

import logging
from dataclasses import dataclass
from functools import partial
from typing import Any

from adapters.mlx.cache import MlxCache
from adapters.mlx.dialect import THINKING, Dialect
from adapters.mlx.guide import GuidedLogits, MlxGuide
from adapters.mlx.logprobs import LogprobReader
from adapters.mlx.model import LoadedModel
from adapters.mlx.runtime import ON_GPU, OPENBLAS, BatchGenerator, mx
from adapters.mlx.sampling import Processor, penalties, sampler
from adapters.mlx.speech import Parse, Speech
from adapters.mlx.toolparse import CallParser, read_forced
from adapters.mlx.turn import LiveTurn
from domain.ports import Deliver, Submission

_log = logging.getLogger(__name__)

CONCURRENCY = 8
"""How many turns are decoded together; more wait for a place."""

# A step is how long a cancelled turn still runs. On a CPU, short steps cost nothing, and with the slow
# arithmetic that is there without an OpenBLAS, 128 tokens of a small model would take 12 seconds.
_CPU_STEP_TOKENS = 128 if OPENBLAS else 16
_PREFILL_STEP_TOKENS = 512 if ON_GPU else _CPU_STEP_TOKENS


@dataclass(frozen=True)
class _Seat:
    """A turn's place in the batch, with what else of it is asked at each step."""

    turn: LiveTurn
    guided: GuidedLogits | None
    top_logprobs: int | None


class Batch:
    """Turns come by `start`, move on with each `step`, and leave when they end or by `cancel`."""

    def __init__(self, model: LoadedModel) -> None:
        self._model = model
        self._dialect = Dialect(model.tokenizer)
        self._calls = CallParser(model.tokenizer)
        self._logprobs = LogprobReader(model.tokenizer)
        self._live: dict[int, _Seat] = {}
        self._generator = self._new_generator()

    @property
    def idle(self) -> bool:
        return not self._live

    def start(self, submission: Submission, deliver: Deliver, submitted_s: float) -> None:
        """Put a turn into the batch. One that cannot be run fails by itself."""
        guide = submission.guide
        assert guide is None or isinstance(guide, MlxGuide)
        begins_with = self._dialect.begins_with(submission.prompt.ids)
        speech = self._speech(submission, guide, begins_with)
        turn = LiveTurn(submission, deliver, speech, self._model.tokenizer.detokenizer, submitted_s)
        try:
            guided = self._guided(submission, guide, begins_with)
            uid = self._insert(submission, turn, guided)
        except Exception as error:
            turn.fail(error)
            return
        self._live[uid] = _Seat(turn, guided, submission.sampling.top_logprobs)
        if len(self._live) > 1:
            for companion in self._live.values():
                companion.turn.alone = False

    def step(self) -> None:
        """Read a piece of each waiting prompt and make one token of every answer."""
        _, responses = self._generator.next()
        for response in responses:
            seat = self._live[response.uid]
            try:
                self._tell(response, seat)
            except Exception as error:
                # What one model says must not end the turns of others.
                _log.exception("turn %s failed", seat.turn.turn_id)
                self._take_out(response.uid)
                seat.turn.fail(error)

    def cancel(self, turn_id: str) -> None:
        """Take a turn out; it keeps what was read of it so far."""
        for uid, seat in self._live.items():
            if seat.turn.turn_id == turn_id:
                seat.turn.cancel(self._take_out(uid))
                return

    def fail(self, error: Exception) -> None:
        """End all turns as failed. What was computing may be half done, so it is begun afresh."""
        failed, self._live = self._live, {}
        self._generator.close()
        self._generator = self._new_generator()
        for seat in failed.values():
            seat.turn.fail(error)

    def close(self) -> None:
        """End all turns as cancelled."""
        self._generator.close()
        for seat in self._live.values():
            seat.turn.cancel()

    def _tell(self, response: Any, seat: _Seat) -> None:
        """Give a turn its next token, and end it if that was the last."""
        if seat.guided and seat.guided.failure:
            raise seat.guided.failure
        turn, uid = seat.turn, response.uid
        logprob = None
        if seat.top_logprobs is not None:
            logprob = self._logprobs.read(response.token, response.logprobs, seat.top_logprobs)
        turn.receive(response.token, logprob, ends=response.token in self._dialect.ends)
        if response.finish_reason is not None:
            del self._live[uid]
            turn.finish(response.finish_reason, MlxCache(tuple(response.all_tokens), response.prompt_cache))
        elif turn.stopped:
            cache = self._take_out(uid)
            assert cache
            turn.finish("stop", cache)

    def _take_out(self, uid: int) -> MlxCache | None:
        """Remove a turn from the batch; what was read of it, if anything was."""
        removed = self._generator.remove([uid], return_prompt_caches=True)
        self._live.pop(uid, None)
        layers, ids = removed.get(uid, (None, ()))
        return MlxCache(tuple(ids), layers) if ids else None

    def _new_generator(self) -> Any:
        return BatchGenerator(
            self._model.network,
            stop_tokens=[[end] for end in self._dialect.ends],
            completion_batch_size=CONCURRENCY,
            prefill_batch_size=CONCURRENCY,
            prefill_step_size=_PREFILL_STEP_TOKENS,
            # One stream for all that this thread computes, so that nothing waits for another stream.
            stream=mx.default_stream(mx.default_device()),
        )

    def _speech(self, submission: Submission, guide: MlxGuide | None, begins_with: str) -> Speech:
        parse: Parse | None = None
        if guide and guide.shape != "json":
            parse = partial(read_forced, dialect=self._dialect)
        elif submission.tools and not guide:
            parse = partial(self._calls.read, tools=submission.tools)
        return Speech(
            self._dialect.markers,
            begins_with=begins_with,
            stop=submission.sampling.stop,
            parse=parse,
            shape=guide.shape if guide else "free",
        )

    def _guided(
        self, submission: Submission, guide: MlxGuide | None, begins_with: str
    ) -> GuidedLogits | None:
        if guide is None:
            return None
        return GuidedLogits(
            guide,
            self._dialect,
            prompt_tokens=len(submission.prompt.ids),
            thinking=self._model.tokenizer.detokenizer if begins_with == THINKING else None,
        )

    def _insert(self, submission: Submission, turn: LiveTurn, guided: GuidedLogits | None) -> int:
        prompt, warm = submission.prompt.ids, submission.warm
        assert warm is None or isinstance(warm, MlxCache)
        cached = warm.common_prefix(prompt) if warm else 0
        # The guide has the last word: what it rules out, no penalty may bring back.
        processors: list[Processor] = penalties(submission.sampling, len(prompt))
        if guided:
            processors.append(guided)
        # Copies: the generator goes on writing to the lists it gets.
        [uid] = self._generator.insert(
            [list(prompt[cached:])],
            max_tokens=[submission.output_budget_tokens],
            caches=[warm.first(cached) if warm and cached else None],
            all_tokens=[list(prompt[:cached])],
            samplers=[sampler(submission.sampling)],
            logits_processors=[processors],
        )
        turn.started(cached)
        return int(uid)
