"""The engine port over a socket: `MlxEngine` in a process of its own, whose end is an event like others."""

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from itertools import count
from queue import SimpleQueue
from threading import Lock, current_thread
from time import monotonic
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import asdict

from turnlog.adapters.engine_process.channel import Channel
from turnlog.adapters.engine_process.heartbeat import Heartbeat
from turnlog.adapters.engine_process.messages import (
    CacheExtent,
    CacheNote,
    Cancel,
    Drop,
    Ended,
    Failed,
    FromEngine,
    Grammar,
    Logged,
    Output,
    Outputs,
    Ping,
    Pong,
    ReleaseMemory,
    Said,
    Submit,
    Thought,
    WasCancelled,
)
from turnlog.adapters.engine_process.spawned import SpawnedProcess, in_background
from turnlog.adapters.engine_process.texts import TextProcess
from turnlog.adapters.system import resident_bytes
from turnlog.domain import tokens
from turnlog.domain.errors import EngineError, ShuttingDownError
from turnlog.domain.messages import Message
from turnlog.domain.ports import (
    CacheHandle,
    Cancelled,
    Constraint,
    Crash,
    Deliver,
    End,
    EngineCrashed,
    EngineFailed,
    EngineInfo,
    EngineOutput,
    Prompt,
    ReasoningChunk,
    Submission,
    TextChunk,
    TurnStats,
    Vitals,
)
from turnlog.domain.tokens import TokenIds
from turnlog.domain.tools import Tool

_log = logging.getLogger("turnlog")


class RemoteCache(NamedTuple):
    """A prefix cache of the engine process: its number there, and what the server has to know of it."""

    number: int
    ids: TokenIds
    size_bytes: int
    extent: CacheExtent


class _Turn(NamedTuple):
    """A turn that the process runs."""

    prompt: TokenIds
    deliver: Deliver


class ProcessEngine:
    """An `InferenceEngine` whose model is loaded in `process`. Outputs are delivered on a thread of its own.

    Three threads: one reads what the process says and watches that it goes on saying something, one writes,
    as a stopped process reads nothing, one listens to its error stream.

    Args:
        channel: on which the process has said that the model is loaded; its reads time out after
            `heartbeat.TICK_S`.
        texts: renders and compiles for this engine; released when the engine is closed.
    """

    def __init__(
        self, process: SpawnedProcess, channel: Channel[FromEngine], info: EngineInfo, texts: TextProcess
    ) -> None:
        self.crashed: Future[Crash] = Future()
        self._process = process
        self._channel = channel
        self._info = info
        self._texts = texts
        self._heartbeat = Heartbeat(monotonic())
        self._numbers = count(1)
        self._turns: dict[int, _Turn] = {}
        self._abort_reason: str | None = None
        # The final output for every new turn; None while the engine accepts turns.
        self._final: Cancelled | EngineCrashed | None = None
        # Guards the turns and whether there may be more.
        self._door = Lock()
        self._outbox: SimpleQueue[Struct | None] = SimpleQueue()
        self._writer = in_background(self._write, f"engine-{process.pid}-writer")
        self._reader = in_background(self._read, f"engine-{process.pid}-reader")

    @property
    def info(self) -> EngineInfo:
        return self._info

    def vitals(self) -> Vitals:
        """Of all its processes. The memory of the engine process is what it said last."""
        texts_bytes = sum(map(resident_bytes, self._texts.pids))
        return Vitals(self._process.pid, self._heartbeat.memory_bytes + texts_bytes)

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Tool] = (),
        effort: str | None = None,
        recorded: Mapping[int, TokenIds] | None = None,
        most_tokens: int | None = None,
    ) -> Prompt:
        return self._texts.render(
            messages, tools=tools, effort=effort, recorded=recorded or {}, most_tokens=most_tokens
        )

    def decode_tokens(self, ids: TokenIds) -> tuple[str, ...]:
        return self._texts.decode(ids)

    def compile(self, constraint: Constraint) -> Grammar:
        return self._texts.compile(constraint)

    def submit(self, submission: Submission, deliver: Deliver) -> None:
        constraint, warm = submission.constraint, submission.warm
        assert constraint is None or isinstance(constraint, Grammar)
        number = next(self._numbers)
        message = Submit(
            turn=number,
            turn_id=submission.turn_id,
            prompt=tokens.pack(submission.prompt.ids),
            sampling=submission.sampling,
            output_budget_tokens=submission.output_budget_tokens,
            warm=_ours(warm).number if warm is not None else None,
            constraint=constraint,
            tools=submission.tools,
        )
        with self._door:
            final = self._final
            if final is None:
                self._turns[number] = _Turn(submission.prompt.ids, deliver)
                self._outbox.put(message)
        if final is not None:
            deliver(final)

    def cancel(self, turn_id: str) -> None:
        self._outbox.put(Cancel(turn_id))

    def ping(self) -> Future[None]:
        """Answered by what is known: the process gives signs of life by itself."""
        answer: Future[None] = Future()
        if isinstance(self._final, Cancelled):
            answer.set_exception(ShuttingDownError())
        elif problem := self._final.message if self._final else self._heartbeat.problem(monotonic()):
            answer.set_exception(EngineError(problem))
        else:
            answer.set_result(None)
        return answer

    def common_prefix(self, handle: CacheHandle, prompt: Prompt) -> int:
        cache = _ours(handle)
        return cache.extent.spared(cache.ids, prompt.ids)

    def size_bytes(self, handle: CacheHandle) -> int:
        return _ours(handle).size_bytes

    def drop(self, handle: CacheHandle) -> None:
        self._outbox.put(Drop(_ours(handle).number))

    def release_memory(self) -> None:
        self._outbox.put(ReleaseMemory())

    def abort(self, reason: str) -> None:
        if self._abort_reason is None:
            self._abort_reason = reason
        self._process.kill()

    def close(self) -> None:
        """End the running turns as cancelled, and the process, which has nothing to put away."""
        self._refuse_turns(Cancelled())
        self._outbox.put(None)
        self._process.kill()
        self._reader.join()
        self._writer.join()
        self._process.close()
        self._texts.release()

    def _refuse_turns(self, final: Cancelled | EngineCrashed) -> list[_Turn]:
        """Take no more turns, and end those that run; which they are."""
        with self._door:
            if self._final is None:
                self._final = final
            turns = list(self._turns.values())
            self._turns.clear()
        # The crash is published before its turns get it, so that waiting turns are not submitted.
        if isinstance(self._final, EngineCrashed) and not self.crashed.done():
            self.crashed.set_result(self._crash(turns))
        for turn in turns:
            _deliver(turn, self._final)
        return turns

    # ── the writer ──

    def _write(self) -> None:
        try:
            while (message := self._outbox.get()) is not None:
                self._channel.send(message)
        except OSError:
            pass  # the process has ended, which the reader notices

    # ── the reader ──

    def _read(self) -> None:
        try:
            while True:
                with suppress(TimeoutError):
                    self._take(self._channel.receive())
                self._watch()
        except EOFError:
            pass
        except Exception:
            # A message that cannot be read: nothing that follows could be trusted.
            _log.exception("[models] the engine process %d sent an invalid message", self._process.pid)
            self.abort("it sent an invalid message")
        how = self._process.wait()
        self._refuse_turns(EngineCrashed(f"The engine process ended: {self._abort_reason or how}."))

    def _crash(self, turns: list[_Turn]) -> Crash:
        lone = tokens.digest(turns[0].prompt) if len(turns) == 1 else None
        return Crash(self._abort_reason or self._process.wait(), self._process.last_words(), lone)

    def _watch(self) -> None:
        now_s = monotonic()
        if self._heartbeat.asks(now_s):
            self._outbox.put(Ping())
        if self._abort_reason is None and (reason := self._heartbeat.verdict(now_s)):
            self.abort(reason)

    def _take(self, message: FromEngine) -> None:
        match message:
            case Outputs(outputs=outputs):
                for output in outputs:
                    self._hand_over(output)
            case Pong():
                self._heartbeat.receive(message)
            case Logged(level=level, line=line):
                _log.log(level, "[models] the engine process %d: %s", self._process.pid, line)
            case _:
                raise ValueError(f"{message} before a model is loaded")

    def _hand_over(self, output: Output) -> None:
        if isinstance(output, Said | Thought):
            if turn := self._turns.get(output.turn):
                _deliver(turn, _chunk(output))
            return
        with self._door:
            ended = self._turns.pop(output.turn, None)
        if ended:
            _deliver(ended, _final(output, ended.prompt))


def _chunk(output: Said | Thought) -> TextChunk | ReasoningChunk:
    return (
        TextChunk(output.text, output.logprobs) if isinstance(output, Said) else ReasoningChunk(output.text)
    )


def _final(output: Ended | Failed | WasCancelled, prompt: TokenIds) -> End | EngineFailed | Cancelled:
    match output:
        case Ended():
            return End(
                finish_reason=output.finish_reason,
                text=output.text,
                thinking=output.thinking,
                tool_calls=output.tool_calls,
                cache=_cache(output.cache, prompt, output.stats),
                **asdict(output.stats),
            )
        case Failed():
            return EngineFailed(output.message, output.stats, output.constraint_lost)
        case WasCancelled():
            return Cancelled(_cache(output.cache, prompt, output.stats), output.stats)


def _cache(note: CacheNote | None, prompt: TokenIds, stats: TurnStats | None) -> RemoteCache | None:
    if note is None:
        return None
    ids = prompt + ((stats and stats.output_ids) or ())
    return RemoteCache(note.number, ids[: note.extent.tokens], note.size_bytes, note.extent)


def _deliver(turn: _Turn, output: EngineOutput) -> None:
    try:
        turn.deliver(output)
    except Exception:
        # A failing receiver must not affect the other turns.
        _log.exception("[models] an output could not be delivered in %s", current_thread().name)


def _ours(handle: CacheHandle) -> RemoteCache:
    assert isinstance(handle, RemoteCache)
    return handle
