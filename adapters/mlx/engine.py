"""The inference engine on MLX: one thread owns the model and everything computed with it."""

import gc
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from time import perf_counter

from adapters.mlx.batch import CONCURRENCY, Batch
from adapters.mlx.cache import MlxCache
from adapters.mlx.dialect import Dialect
from adapters.mlx.guide import GuideCompiler, MlxGuide
from adapters.mlx.model import LoadedModel, load
from adapters.mlx.prompt import PromptRenderer
from adapters.mlx.runtime import mx
from domain.errors import ShuttingDownError
from domain.messages import Message
from domain.ports import CacheHandle, Cancelled, Deliver, EngineInfo, Guide, Prompt, Submission
from domain.tokens import TokenIds
from domain.tools import Tool

_log = logging.getLogger(__name__)

_Inbox = SimpleQueue[Callable[[Batch], None] | None]
"""What the engine thread is asked to do, in order; None asks it to end."""


class MlxEngine:
    """An `InferenceEngine` on a local MLX model. Outputs are delivered on its own thread."""

    def __init__(self, model: LoadedModel) -> None:
        self._info = EngineInfo(
            model_fingerprint=model.model_fingerprint,
            tokenizer_fingerprint=model.tokenizer_fingerprint,
            context_window_tokens=model.context_window_tokens,
            concurrency=CONCURRENCY,
        )
        dialect = Dialect(model.tokenizer)
        self._renderer = PromptRenderer(model.tokenizer, dialect)
        self._guides = GuideCompiler(model.tokenizer, dialect)
        self._inbox: _Inbox = SimpleQueue()
        self._closed = False
        self._door = Lock()
        self._thread = Thread(target=_serve, args=(model, self._inbox), name="mlx-engine", daemon=True)
        self._thread.start()

    @classmethod
    def load(cls, folder: Path) -> "MlxEngine":
        """An engine on the model in `folder`. Takes seconds, more for big models.

        Raises:
            EngineError: the folder cannot be used; the sentence names it and says what is wrong there.
        """
        return cls(load(folder))

    @property
    def info(self) -> EngineInfo:
        return self._info

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Tool] = (),
        thinking: bool | None = None,
        recorded: Mapping[int, TokenIds] | None = None,
    ) -> Prompt:
        return self._renderer.render(messages, tools=tools, thinking=thinking, recorded=recorded)

    def compile(self, guide: Guide) -> MlxGuide:
        return self._guides.compile(guide)

    def submit(self, submission: Submission, deliver: Deliver) -> None:
        if not self._ask(
            partial(Batch.start, submission=submission, deliver=deliver, submitted_s=perf_counter())
        ):
            deliver(Cancelled())

    def cancel(self, turn_id: str) -> None:
        self._ask(partial(Batch.cancel, turn_id=turn_id))

    def ping(self) -> Future[None]:
        answer: Future[None] = Future()
        if not self._ask(lambda _: answer.set_result(None)):
            answer.set_exception(ShuttingDownError())
        return answer

    def common_prefix(self, handle: CacheHandle, prompt: Prompt) -> int:
        return _ours(handle).common_prefix(prompt.ids)

    def size_bytes(self, handle: CacheHandle) -> int:
        return _ours(handle).size_bytes()

    def drop(self, handle: CacheHandle) -> None:
        cache = _ours(handle)
        # In its turn: a submission that came before may still have to read it.
        if not self._ask(lambda _: cache.drop()):
            cache.drop()

    def release_memory(self) -> None:
        self._ask(lambda _: mx.clear_cache())

    def close(self) -> None:
        with self._door:
            if not self._closed:
                self._closed = True
                self._inbox.put(None)
        self._thread.join()

    def _ask(self, command: Callable[[Batch], None]) -> bool:
        """Whether the engine thread will get to it; not after `close`."""
        with self._door:
            if not self._closed:
                self._inbox.put(command)
            return not self._closed


def _ours(handle: CacheHandle) -> MlxCache:
    assert isinstance(handle, MlxCache)
    return handle


def _serve(model: LoadedModel, inbox: _Inbox) -> None:
    """The life of the engine thread."""
    batch = Batch(model)
    while (command := _next_command(inbox, batch)) is not None:
        try:
            command(batch)
        except Exception as error:
            # Whatever went wrong, the next turn can be served.
            _log.exception("the running turns failed")
            batch.fail(error)
    batch.close()
    # MLX aborts the process at its exit if a thread that computed leaves anything behind.
    del batch, model, command
    gc.collect()
    mx.synchronize()
    mx.clear_cache()
    mx.clear_streams()


def _next_command(inbox: _Inbox, batch: Batch) -> Callable[[Batch], None] | None:
    """What was asked for, else the next step; waits only when there is nothing to compute."""
    try:
        return inbox.get(block=batch.idle)
    except Empty:
        return Batch.step
