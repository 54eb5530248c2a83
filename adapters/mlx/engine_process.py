"""The engine's own process: `MlxEngine`, asked and answered over a socket. `SpawnedProcess` runs it.

One thread listens, so that a ping is answered whatever is being computed; the main thread carries out what
is asked, in order; the engine's thread computes, and sends what a step has said as one message.
"""

import logging
import os
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from turnlog.adapters.engine_process.channel import Channel
from turnlog.adapters.engine_process.messages import (
    CacheNote,
    Cancel,
    Drop,
    Ended,
    Failed,
    Loaded,
    LoadFailed,
    LoadModel,
    Logged,
    Output,
    Outputs,
    Ping,
    Pong,
    ReleaseMemory,
    Said,
    Submit,
    Thought,
    ToEngine,
    WasCancelled,
)
from turnlog.adapters.engine_process.spawned import in_background
from turnlog.adapters.mlx.hosted import connected, described
from turnlog.adapters.system import resident_bytes
from turnlog.domain import tokens
from turnlog.domain.errors import EngineError, InvalidRequestError
from turnlog.domain.ports import (
    CacheHandle,
    Cancelled,
    End,
    EngineCrashed,
    EngineFailed,
    EngineOutput,
    Exhausted,
    Prompt,
    ReasoningChunk,
    Submission,
    TextChunk,
    TurnStats,
)

if TYPE_CHECKING:  # importing MLX takes a second, in which pings are answered already
    from turnlog.adapters.mlx.cache import MlxCache
    from turnlog.adapters.mlx.engine import MlxEngine

_log = logging.getLogger(__name__)


class EngineServer:
    """Serves one engine over a channel."""

    def __init__(self, channel: Channel[ToEngine]) -> None:
        self._channel = channel
        self._inbox: SimpleQueue[ToEngine] = SimpleQueue()
        self._outputs: list[Output] = []
        self._numbers = count(1)
        self._caches: dict[int, MlxCache] = {}
        self._saying = Lock()
        self._step_s: Callable[[], float] = lambda: 0.0
        self._pool_bytes: Callable[[], int] = lambda: 0
        self._active_bytes: Callable[[], int] = lambda: 0

    def serve(self) -> None:
        """Load the model and run its turns, until the server is gone."""
        in_background(self._listen, "listener")
        first = self._inbox.get()
        assert isinstance(first, LoadModel)
        logging.getLogger().addHandler(_ToServer(self._channel))
        try:
            engine = self._load(first)
        except EngineError as error:
            self._channel.send(LoadFailed(error.message))
            return
        while True:
            match self._inbox.get():
                case Submit() as asked:
                    self._submit(engine, asked)
                case Cancel(turn_id=turn_id):
                    engine.cancel(turn_id)
                case Drop(cache=number):
                    if cache := self._caches.pop(number, None):
                        engine.drop(cache)
                case ReleaseMemory():
                    engine.release_memory()

    def _load(self, asked: LoadModel) -> "MlxEngine":
        from turnlog.adapters.mlx.fingerprint import FileHashes
        from turnlog.adapters.mlx.runtime import mx, slow_because
        from turnlog.adapters.mlx.source import MlxSource
        from turnlog.adapters.mlx.thread import EngineThread

        thread = EngineThread()
        self._step_s = lambda: thread.step_s
        self._pool_bytes, self._active_bytes = mx.get_cache_memory, mx.get_active_memory
        hashes = FileHashes(Path(asked.hashes) if asked.hashes else None)
        source = MlxSource(
            Path(asked.folder), thread, hashes, concurrency=asked.concurrency, delivered=self._send_said
        )
        engine = source.load()
        self._channel.send(Loaded(engine.info, slow_because()))
        return engine

    def _submit(self, engine: "MlxEngine", asked: Submit) -> None:
        try:
            submission = Submission(
                turn_id=asked.turn_id,
                prompt=Prompt(tokens.unpack(asked.prompt)),
                sampling=asked.sampling,
                output_budget_tokens=asked.output_budget_tokens,
                warm=self._caches[asked.warm] if asked.warm is not None else None,
                constraint=engine.build(asked.constraint) if asked.constraint else None,
                tools=asked.tools,
            )
        except Exception as error:
            _log.exception("a turn could not be started")
            is_lost = isinstance(error, InvalidRequestError)  # as its constraint cannot be built
            said = f"{type(error).__name__}: {error}"
            self._channel.send(Outputs([Failed(asked.turn, said, None, is_lost)]))
            return
        engine.submit(submission, partial(self._say, asked.turn))

    # ── on the engine's thread ──

    def _say(self, turn: int, output: EngineOutput) -> None:
        self._outputs.append(self._message(turn, output))

    def _send_said(self) -> None:
        outputs, self._outputs = self._outputs, []
        self._channel.send(Outputs(outputs))

    def _message(self, turn: int, output: EngineOutput) -> Output:
        match output:
            case TextChunk(text=text, logprobs=logprobs):
                return Said(turn, text, logprobs)
            case ReasoningChunk(text=text):
                return Thought(turn, text)
            case End():
                stats = TurnStats(
                    **{name: value for name, value in asdict(output).items() if name in _STATS_FIELDS}
                )
                return Ended(
                    turn,
                    output.finish_reason,
                    output.text,
                    output.thinking,
                    output.tool_calls,
                    stats,
                    self._noted(output.cache),
                )
            case EngineFailed():
                return Failed(turn, output.message, output.stats, output.constraint_lost)
            case Cancelled(cache=cache, stats=spent_so_far):
                return WasCancelled(turn, spent_so_far, self._noted(cache))
            case Exhausted() | EngineCrashed():
                raise AssertionError(f"unexpected engine output {output}")

    def _noted(self, cache: CacheHandle | None) -> CacheNote | None:
        if cache is None:
            return None
        from turnlog.adapters.mlx.cache import MlxCache

        assert isinstance(cache, MlxCache)
        number = next(self._numbers)
        self._caches[number] = cache
        return CacheNote(number, cache.size_bytes(), cache.extent)

    # ── on the listening thread ──

    def _listen(self) -> None:
        try:
            while True:
                message = self._channel.receive()
                if isinstance(message, Ping):
                    self._channel.send(Pong(self._step_s(), self._held_bytes()))
                else:
                    self._inbox.put(message)
        except (EOFError, OSError):
            # The server is gone, and nothing here is worth keeping.
            os._exit(0)

    def _held_bytes(self) -> int:
        """What the system says, without MLX's pool of freed memory; where it says nothing, what MLX says."""
        return max(resident_bytes(os.getpid()) - self._pool_bytes(), self._active_bytes())


_STATS_FIELDS = frozenset(TurnStats.__struct_fields__)


class _ToServer(logging.Handler):
    """Hands what is logged here to the server's log."""

    def __init__(self, channel: Channel[ToEngine]) -> None:
        super().__init__(logging.WARNING)
        self._channel = channel

    def emit(self, record: logging.LogRecord) -> None:
        self._channel.send(Logged(record.levelno, described(record)))


if __name__ == "__main__":
    EngineServer(connected(ToEngine)).serve()  # type: ignore[arg-type]
    # Without MLX's own clean-up, which needs all of its threads to have ended.
    os._exit(0)
