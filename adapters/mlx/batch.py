"""The turns that run at the moment, decoded together by one `BatchGenerator`.

Everything here happens on the engine thread. One turn alone takes the same path as many.
"""

from typing import Any

from adapters.mlx.cache import MlxCache
from adapters.mlx.model import LoadedModel
from adapters.mlx.runtime import ON_GPU, OPENBLAS, BatchGenerator, mx
from adapters.mlx.sampling import sampler
from adapters.mlx.turn import LiveTurn
from domain.ports import Deliver, Submission

CONCURRENCY = 8
"""How many turns are decoded together; more wait for a place."""

# A step is how long a cancelled turn still runs. On a CPU, short steps cost nothing, and with the slow
# arithmetic that is there without an OpenBLAS, 128 tokens of a small model would take 12 seconds.
_CPU_STEP_TOKENS = 128 if OPENBLAS else 16
_PREFILL_STEP_TOKENS = 512 if ON_GPU else _CPU_STEP_TOKENS


class Batch:
    """Turns come by `start`, move on with each `step`, and leave when they end or by `cancel`."""

    def __init__(self, model: LoadedModel) -> None:
        self._model = model
        self._ends = model.tokenizer.eos_token_ids
        self._live: dict[int, LiveTurn] = {}
        self._generator = self._new_generator()

    @property
    def idle(self) -> bool:
        return not self._live

    def start(self, submission: Submission, deliver: Deliver, submitted_s: float) -> None:
        """Put a turn into the batch. One that cannot be run fails by itself."""
        turn = LiveTurn(submission, deliver, self._model.tokenizer.detokenizer, submitted_s)
        try:
            uid = self._insert(submission, turn)
        except Exception as error:
            turn.fail(error)
            return
        self._live[uid] = turn
        if len(self._live) > 1:
            for companion in self._live.values():
                companion.alone = False

    def step(self) -> None:
        """Read a piece of each waiting prompt and make one token of every answer."""
        _, responses = self._generator.next()
        for response in responses:
            turn = self._live[response.uid]
            turn.receive(response.token, ends=response.token in self._ends)
            if response.finish_reason is not None:
                turn.finish(
                    response.finish_reason, MlxCache(tuple(response.all_tokens), response.prompt_cache)
                )
                del self._live[response.uid]

    def cancel(self, turn_id: str) -> None:
        """Take a turn out; it keeps what was read of it so far."""
        for uid, turn in self._live.items():
            if turn.turn_id == turn_id:
                layers, ids = self._generator.remove([uid], return_prompt_caches=True)[uid]
                cache = MlxCache(tuple(ids), layers) if ids else None
                del self._live[uid]
                turn.cancel(cache)
                return

    def fail(self, error: Exception) -> None:
        """End all turns as failed. What was computing may be half done, so it is begun afresh."""
        failed, self._live = self._live, {}
        self._generator.close()
        self._generator = self._new_generator()
        for turn in failed.values():
            turn.fail(error)

    def close(self) -> None:
        """End all turns as cancelled."""
        self._generator.close()
        for turn in self._live.values():
            turn.cancel()

    def _new_generator(self) -> Any:
        return BatchGenerator(
            self._model.network,
            stop_tokens=[[end] for end in self._ends],
            completion_batch_size=CONCURRENCY,
            prefill_batch_size=CONCURRENCY,
            prefill_step_size=_PREFILL_STEP_TOKENS,
            # One stream for all that this thread computes, so that nothing waits for another stream.
            stream=mx.default_stream(mx.default_device()),
        )

    def _insert(self, submission: Submission, turn: LiveTurn) -> int:
        prompt, warm = submission.prompt.ids, submission.warm
        assert warm is None or isinstance(warm, MlxCache)
        cached = warm.common_prefix(prompt) if warm else 0
        # Copies: the generator goes on writing to the lists it gets.
        [uid] = self._generator.insert(
            [list(prompt[cached:])],
            max_tokens=[submission.output_budget_tokens],
            caches=[warm.first(cached) if warm and cached else None],
            all_tokens=[list(prompt[:cached])],
            samplers=[sampler(submission.sampling)],
        )
        turn.started(cached)
        return int(uid)
