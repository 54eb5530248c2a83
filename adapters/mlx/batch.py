"""The running turns, decoded together by one `EnsembleGenerator`.

Everything here happens on the engine thread. A single turn takes the same path as many. Turns of a model
that cannot be batched run one after the other in a `SoloGenerator`.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any

from turnlog.adapters.engine_process.source import CONCURRENCY
from turnlog.adapters.mlx.cache import MlxCache
from turnlog.adapters.mlx.chat_format import THINKING, ChatFormat
from turnlog.adapters.mlx.constraints import ConstrainedLogits, MlxConstraint
from turnlog.adapters.mlx.ensemble import EnsembleGenerator
from turnlog.adapters.mlx.logprobs import LogprobReader
from turnlog.adapters.mlx.model import LoadedModel
from turnlog.adapters.mlx.outbox import Outbox
from turnlog.adapters.mlx.output_parser import OutputParser, Parse
from turnlog.adapters.mlx.runtime import ON_GPU, OPENBLAS, mx, use_all_cores
from turnlog.adapters.mlx.sampling import Processor, penalties, sampler
from turnlog.adapters.mlx.solo import SoloGenerator
from turnlog.adapters.mlx.tokenbytes import TokenBytes
from turnlog.adapters.mlx.toolparse import CallParser, read_forced
from turnlog.adapters.mlx.turn import BatchedTurn, failed
from turnlog.domain.ports import Deliver, Submission

_log = logging.getLogger(__name__)

# The prompt tokens of one step bound how long a cancelled turn still runs and how long the others wait for
# their next token. On a CPU, short steps cost nothing, and with the slow arithmetic used without OpenBLAS,
# 128 tokens of a small model would take 12 seconds.
_CPU_STEP_TOKENS = 128 if OPENBLAS else 16
PREFILL_STEP_TOKENS = 512 if ON_GPU else _CPU_STEP_TOKENS

# Shares of a step's duration: how long it waits for each further turn, and for all of them.
_GATHERING, _MOST_GATHERING = 0.02, 0.2
# A long step counts for less with every shorter one after it.
_FORGETTING = 0.9

_SMALL_WEIGHT_BYTES = 16 * 2**20
"""Weights that stay in a processor's own cache: one core has computed with them before others could join."""


@dataclass(frozen=True)
class _Running:
    """A turn in the batch, with its per-step extras."""

    turn: BatchedTurn
    constrained: ConstrainedLogits | None
    top_logprobs: int | None


class Batch:
    """Turns enter by `start`, advance with each `step`, and leave when they end or by `cancel`.

    Args:
        concurrency: how many turns are decoded together at most.
        delivered: called when all outputs of a step have been delivered.
    """

    def __init__(
        self,
        model: LoadedModel,
        concurrency: int = CONCURRENCY,
        delivered: Callable[[], None] = lambda: None,
    ) -> None:
        self._network = model.network
        self._tokenizer = model.tokenizer
        self._concurrency = concurrency
        self._small = model.weight_bytes <= _SMALL_WEIGHT_BYTES
        # On a CPU, computing ahead while tokens are delivered pays off only if a forward pass is short.
        self._ahead = ON_GPU or self._small
        self._batches = model.batches
        self._chat_format = ChatFormat(model.tokenizer)
        self._calls = CallParser(model.tokenizer)
        self._bytes = TokenBytes(model.tokenizer)
        self._logprobs = LogprobReader(model.tokenizer, self._bytes)
        self._live: dict[int, _Running] = {}
        self._waiting: set[int] = set()
        self._outbox = Outbox(delivered)
        # When the first turn arrived that no step has seen yet, and the duration of a prefill step.
        self._first_came_s: float | None = None
        self._prefill_s = 0.0
        # Created by the first turn, as it belongs to the engine thread.
        self._generator: Any = None

    @property
    def idle(self) -> bool:
        return not self._live

    @property
    def gather_s(self) -> float:
        """How long to wait for turns that arrive at about the same time, to prefill them together.

        Turns past their prefill never wait, and the others only for a small share of a step.
        """
        if self._first_came_s is None or len(self._live) > len(self._waiting):
            return 0.0
        left_s = self._prefill_s * _MOST_GATHERING - (perf_counter() - self._first_came_s)
        return max(0.0, min(left_s, self._prefill_s * _GATHERING))

    def start(self, submission: Submission, deliver: Deliver, submitted_s: float) -> None:
        """Put a turn into the batch. One that cannot be started fails without harm to the others."""
        emit = partial(self._outbox.put, deliver)
        try:
            uid, running = self._inserted(submission, emit, submitted_s)
        except Exception as error:
            emit(failed(error))
            self._outbox.deliver()
            return
        self._live[uid] = running
        self._waiting.add(uid)
        if self._first_came_s is None or len(self._live) == 1:
            self._first_came_s = perf_counter()
        # Turns that run one after the other do not change each other's numbers.
        if len(self._live) > 1 and self._concurrency > 1:
            for companion in self._live.values():
                companion.turn.unbatched = False

    def step(self) -> None:
        """Prefill a piece of each waiting prompt and sample one token of every answer."""
        with self._failing_together():
            use_all_cores(wanted=not self._small)
            self._generator.prefill_step_size = self._piece_tokens()
            began_s, self._first_came_s = perf_counter(), None
            prompts, responses = self._generator.next()
            if prompts:
                self._prefill_s = max(perf_counter() - began_s, self._prefill_s * _FORGETTING)
            self._waiting.difference_update(prompt.uid for prompt in prompts if prompt.end_of_prompt)
            for response in responses:
                running = self._live[response.uid]
                try:
                    self._advance(response, running)
                except Exception as error:
                    # One turn's output must not end the other turns.
                    _log.exception("turn %s failed", running.turn.turn_id)
                    self._take_out(response.uid)
                    running.turn.fail(error)

    def cancel(self, turn_id: str) -> None:
        """Take a turn out; its `Cancelled` carries the cache of what was read so far."""
        with self._failing_together():
            for uid, running in self._live.items():
                if running.turn.turn_id == turn_id:
                    running.turn.cancel(self._take_out(uid))
                    return

    def close(self) -> None:
        """End all turns as cancelled, and let go of the model."""
        self._network = None
        for running in self._cleared():
            running.turn.cancel()
        self._outbox.deliver()

    @contextmanager
    def _failing_together(self) -> Iterator[None]:
        """Deliver the outputs of the block. If it raises, every turn fails: the generator may be in an
        inconsistent state, so the next turn gets a new one.
        """
        try:
            yield
        except Exception as error:
            _log.exception("the running turns failed")
            for running in self._cleared():
                running.turn.fail(error)
        finally:
            self._outbox.deliver()

    def _cleared(self) -> list[_Running]:
        """Remove and return all running turns, and discard the generator."""
        cleared = list(self._live.values())
        self._live.clear()
        self._waiting.clear()
        if self._generator is not None:
            self._generator.close()
            self._generator = None
        return cleared

    def _piece_tokens(self) -> int:
        """Tokens of each waiting prompt that a step reads. Shorter ones are padded, so all count alike."""
        decoding = len(self._live) - len(self._waiting)
        prompts = min(len(self._waiting), self._concurrency - decoding)
        return max(1, PREFILL_STEP_TOKENS // max(1, prompts))

    def _advance(self, response: Any, running: _Running) -> None:
        """Give a turn its next token, and end it if that was the last."""
        if running.constrained and running.constrained.failure:
            raise running.constrained.failure
        turn, uid = running.turn, response.uid
        logprob = None
        if running.top_logprobs is not None:
            logprob = self._logprobs.read(response.token, response.logprobs, running.top_logprobs)
        turn.receive(response.token, logprob, ends=response.token in self._chat_format.ends)
        if response.finish_reason is not None:
            self._forget(uid)
            turn.finish(response.finish_reason, MlxCache(tuple(response.all_tokens), response.prompt_cache))
        elif turn.stopped:
            cache = self._take_out(uid)
            assert cache
            turn.finish("stop", cache)

    def _take_out(self, uid: int) -> MlxCache | None:
        """Remove a turn from the batch; returns the cache of what was read, if anything was."""
        removed = self._generator.remove([uid], return_prompt_caches=True)
        self._forget(uid)
        layers, ids = removed.get(uid, (None, ()))
        return MlxCache(tuple(ids), layers) if ids else None

    def _forget(self, uid: int) -> None:
        self._live.pop(uid, None)
        self._waiting.discard(uid)

    def _new_generator(self) -> Any:
        if not self._batches:
            return SoloGenerator(
                self._network,
                ahead=self._ahead,
                stop_tokens=self._chat_format.ends,
                prefill_step_size=PREFILL_STEP_TOKENS,
            )
        return EnsembleGenerator(
            self._network,
            ahead=self._ahead,
            stop_tokens=[[end] for end in self._chat_format.ends],
            completion_batch_size=self._concurrency,
            prefill_batch_size=self._concurrency,
            prefill_step_size=PREFILL_STEP_TOKENS,
            # One stream for all work of this thread, so that nothing waits for another stream.
            stream=mx.default_stream(mx.default_device()),
        )

    def _inserted(self, submission: Submission, emit: Deliver, submitted_s: float) -> tuple[int, _Running]:
        constraint = submission.constraint
        assert constraint is None or isinstance(constraint, MlxConstraint)
        begins_with = self._chat_format.begins_with(submission.prompt.ids)
        parser = self._parser(submission, constraint, begins_with)
        turn = BatchedTurn(
            submission, emit, parser, self._tokenizer.detokenizer, self._bytes, submitted_s=submitted_s
        )
        constrained = self._constrained(submission, constraint, begins_with)
        uid = self._insert(submission, turn, constrained)
        return uid, _Running(turn, constrained, submission.sampling.top_logprobs)

    def _parser(
        self, submission: Submission, constraint: MlxConstraint | None, begins_with: str
    ) -> OutputParser:
        parse: Parse | None = None
        if constraint and constraint.shape != "json":
            parse = partial(read_forced, chat_format=self._chat_format)
        elif submission.tools and not constraint:
            parse = partial(self._calls.read, tools=submission.tools)
        return OutputParser(
            self._chat_format.markers,
            begins_with=begins_with,
            stop=submission.sampling.stop,
            parse=parse,
            shape=constraint.shape if constraint else "free",
        )

    def _constrained(
        self, submission: Submission, constraint: MlxConstraint | None, begins_with: str
    ) -> ConstrainedLogits | None:
        if constraint is None:
            return None
        return ConstrainedLogits(
            constraint,
            self._chat_format,
            prompt_tokens=len(submission.prompt.ids),
            thinking=self._tokenizer.detokenizer if begins_with == THINKING else None,
        )

    def _insert(
        self, submission: Submission, turn: BatchedTurn, constrained: ConstrainedLogits | None
    ) -> int:
        prompt, warm = submission.prompt.ids, submission.warm
        assert warm is None or isinstance(warm, MlxCache)
        cached = warm.common_prefix(prompt) if warm else 0
        # The constraint comes last: no penalty may bring back a token that it rules out.
        processors: list[Processor] = penalties(submission.sampling, len(prompt))
        if constrained:
            processors.append(constrained)
        if self._generator is None:
            self._generator = self._new_generator()
        # Copies: the generator keeps writing to the lists it gets.
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
