"""The inference engine on MLX: all computation happens on one thread, which models may share."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import cached_property, partial
from pathlib import Path
from threading import Lock
from time import perf_counter

from turnlog.adapters.engine_process.source import CONCURRENCY
from turnlog.adapters.mlx.batch import Batch
from turnlog.adapters.mlx.cache import MlxCache
from turnlog.adapters.mlx.chat_format import ChatFormat
from turnlog.adapters.mlx.constraints import ConstraintCompiler
from turnlog.adapters.mlx.model import LoadedModel, load
from turnlog.adapters.mlx.prompt import PromptRenderer
from turnlog.adapters.mlx.runtime import mx, release_memory
from turnlog.adapters.mlx.thread import Command, EngineThread
from turnlog.domain.errors import ShuttingDownError
from turnlog.domain.messages import Message
from turnlog.domain.ports import (
    CacheHandle,
    Cancelled,
    Crash,
    Deliver,
    EngineInfo,
    Prompt,
    Submission,
    Vitals,
)
from turnlog.domain.tokens import TokenIds
from turnlog.domain.tools import Tool


class MlxEngine:
    """An `InferenceEngine` on a local MLX model. Outputs are delivered on the engine thread.

    Args:
        thread: computes the turns; if omitted, the engine has its own.
        concurrency: how many turns are decoded together at most; 1 if the model cannot be batched.
        delivered: called on the engine thread when all outputs of a step have been delivered.
    """

    def __init__(
        self,
        model: LoadedModel,
        thread: EngineThread | None = None,
        concurrency: int = CONCURRENCY,
        delivered: Callable[[], None] = lambda: None,
    ) -> None:
        # Never resolved: the engine crashes only with its process, and then nobody is left to notify.
        self.crashed: Future[Crash] = Future()
        concurrency = concurrency if model.batches else 1
        self._info = EngineInfo(
            model_fingerprint=model.model_fingerprint,
            tokenizer_fingerprint=model.tokenizer_fingerprint,
            context_window_tokens=model.context_window_tokens,
            concurrency=concurrency,
            weight_bytes=model.weight_bytes,
            kv_bytes_per_token=model.kv_bytes_per_token,
        )
        self._tokenizer = model.tokenizer
        self._chat_format = ChatFormat(model.tokenizer)
        constraints = ConstraintCompiler(model.tokenizer, self._chat_format)
        # `build` makes a constraint ready that another process has compiled.
        self.compile, self.build = constraints.compile, constraints.build
        self._batch = Batch(model, concurrency, delivered)
        self._closed = False
        self._door = Lock()
        self._owns_thread = thread is None
        self._thread = thread or EngineThread()
        self._thread.add(self._batch)

    @classmethod
    def load(cls, folder: Path) -> "MlxEngine":
        """An engine on the model in `folder`. Takes seconds, more for big models.

        Raises:
            EngineError: the folder cannot be used; the message names it and the problem.
        """
        return cls(load(folder))

    @property
    def info(self) -> EngineInfo:
        return self._info

    @cached_property
    def _renderer(self) -> PromptRenderer:
        # Lazy: it has its own tokenizer, and the engine process renders nothing.
        return PromptRenderer(self._tokenizer, self._chat_format)

    def vitals(self) -> Vitals:
        """The memory that MLX holds in this process, for all models."""
        return Vitals(memory_bytes=mx.get_active_memory())

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Tool] = (),
        effort: str | None = None,
        recorded: Mapping[int, TokenIds] | None = None,
        most_tokens: int | None = None,
    ) -> Prompt:
        return self._renderer.render(
            messages, tools=tools, effort=effort, recorded=recorded, most_tokens=most_tokens
        )

    def decode_tokens(self, ids: TokenIds) -> tuple[str, ...]:
        return self._renderer.decode_tokens(ids)

    def submit(self, submission: Submission, deliver: Deliver) -> None:
        if not self._ask(partial(self._batch.start, submission, deliver, perf_counter())):
            deliver(Cancelled())

    def cancel(self, turn_id: str) -> None:
        self._ask(partial(self._batch.cancel, turn_id))

    def ping(self) -> Future[None]:
        answer: Future[None] = Future()
        if not self._ask(lambda: answer.set_result(None)):
            answer.set_exception(ShuttingDownError())
        return answer

    def common_prefix(self, handle: CacheHandle, prompt: Prompt) -> int:
        return _ours(handle).common_prefix(prompt.ids)

    def size_bytes(self, handle: CacheHandle) -> int:
        return _ours(handle).size_bytes()

    def drop(self, handle: CacheHandle) -> None:
        cache = _ours(handle)
        # In order: an earlier submission may still have to read it.
        if not self._ask(cache.drop):
            cache.drop()

    def release_memory(self) -> None:
        self._ask(release_memory)

    def abort(self, reason: str) -> None:
        """End the running turns as cancelled; within this process, there is nothing to kill."""
        self.close()

    def close(self) -> None:
        with self._door:
            self._closed = True
        self._thread.remove(self._batch)
        if self._owns_thread:
            self._thread.close()

    def _ask(self, command: Command) -> bool:
        """Queue a command; whether it will run, which it will not after `close`."""
        with self._door:
            return not self._closed and self._thread.ask(command)


def _ours(handle: CacheHandle) -> MlxCache:
    assert isinstance(handle, MlxCache)
    return handle
