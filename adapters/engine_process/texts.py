"""The processes that render, encode and compile for one model: bounded in memory, each request in time."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Condition
from time import monotonic
from typing import Final, TypeVar

from msgspec import Struct

from turnlog.adapters.engine_process.channel import Channel, encoded
from turnlog.adapters.engine_process.messages import (
    Broke,
    CompileCalls,
    Compiled,
    CompileJson,
    Decode,
    Decoded,
    FromText,
    Grammar,
    LoadTokenizer,
    Ready,
    Refused,
    Render,
    Rendered,
    TooLong,
)
from turnlog.adapters.engine_process.spawned import SpawnedProcess, in_background
from turnlog.adapters.owner_queue import WorkEndedError, check_wanted, still_wanted
from turnlog.domain import tokens
from turnlog.domain.budgets import Budget
from turnlog.domain.errors import (
    EngineError,
    InvalidRequestError,
    PromptTooLongError,
    ResponsesError,
    SchemaTooComplexError,
    ShuttingDownError,
    TemplateTimeoutError,
)
from turnlog.domain.messages import Message
from turnlog.domain.ports import Constraint, JsonConstraint, Prompt
from turnlog.domain.schemas import checked
from turnlog.domain.tokens import TokenIds
from turnlog.domain.tools import Tool

_log = logging.getLogger("turnlog")

MODULE: Final = "turnlog.adapters.mlx.text_process"

RENDER_LIMIT_S: Final = 30.0
COMPILE_LIMIT_S: Final = 10.0
START_LIMIT_S: Final = 120.0

RENDER_SECONDS: Final = Budget("render_seconds", RENDER_LIMIT_S)
"""How long one request to a text process may take."""

LONG_BYTES: Final = 128 * 1024
"""Requests beyond this size leave the first process to the others: nobody waits for them."""

SPARE_AFTER_S: Final = 0.2
"""How long a short request waits for the first process before there is a spare one."""

UNWANTED_S: Final = 2.0
"""How long a request may have run that nobody wants any more."""

TICK_S: Final = 0.25

MEMORY_BYTES: Final = 2 * 2**30
"""What tokenizer and request may take together, beside the libraries; Linux keeps the process to it."""

_Answer = TypeVar("_Answer", bound=Struct)


class TextProcess:
    """Renders, encodes and compiles for the model in `folder`. Any thread.

    There is one process, and a spare one for long requests and for whoever would wait for the first. One that
    is too slow, dies, or works for nobody is started again. They live as long as one engine uses them
    (`retain`), so that they survive a crash of the engine process.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._users = 0
        self._processes: list[_Running] = []
        self._free: list[_Running] = []
        self._failure: EngineError | None = None
        # Guards the four above; notified when a process is free, or there will be none.
        self._changed = Condition()

    @property
    def pids(self) -> list[int]:
        """The process ids."""
        return [running.process.pid for running in list(self._processes)]

    def retain(self) -> None:
        """One more engine uses it; a process begins to start if there is none."""
        with self._changed:
            self._users += 1
            if not self._processes:
                self._start(is_spare=False)

    def release(self) -> None:
        """One engine less; with the last one the processes end."""
        with self._changed:
            self._users -= 1
            if self._users:
                return
            processes, self._processes, self._free = self._processes, [], []
            self._changed.notify_all()
        for running in processes:
            running.process.close()

    def wait_until_ready(self) -> None:
        """Wait until the tokenizer is loaded.

        Raises:
            EngineError: it cannot be used.
        """
        with self._borrowed(is_long=False):
            pass

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Tool],
        effort: str | None,
        recorded: Mapping[int, TokenIds],
        most_tokens: int | None = None,
    ) -> Prompt:
        """See `InferenceEngine.render`."""
        packed = {index: tokens.pack(ids) for index, ids in recorded.items()}
        request = Render(tuple(messages), tuple(tools), effort, packed, most_tokens)
        answer = self._ask(request, Rendered, RENDER_LIMIT_S, TemplateTimeoutError(RENDER_LIMIT_S))
        return Prompt(tokens.unpack(answer.ids), answer.effort)

    def decode(self, ids: TokenIds) -> tuple[str, ...]:
        """See `InferenceEngine.decode_tokens`."""
        request = Decode(tokens.pack(ids))
        return self._ask(request, Decoded, RENDER_LIMIT_S, TemplateTimeoutError(RENDER_LIMIT_S)).texts

    def compile(self, constraint: Constraint) -> Grammar:
        """See `InferenceEngine.compile`."""
        checked(constraint)
        request = (
            CompileJson(constraint.schema, constraint.tools, constraint.many)
            if isinstance(constraint, JsonConstraint)
            else CompileCalls(constraint.tools, constraint.many)
        )
        refusal = SchemaTooComplexError(COMPILE_LIMIT_S)
        return self._ask(request, Compiled, COMPILE_LIMIT_S, refusal).constraint

    def _ask(
        self, request: Struct, expected: type[_Answer], limit_s: float, refusal: ResponsesError
    ) -> _Answer:
        try:
            body = encoded(request)
        except OverflowError:
            raise InvalidRequestError("An integer has more than 64 bits.", param="tools") from None
        for _ in range(2):
            with self._borrowed(is_long=len(body) > LONG_BYTES) as running:
                try:
                    answer = running.ask(body, limit_s)
                except TimeoutError:
                    RENDER_SECONDS.reach()
                    _log.warning("[models] restarting a text process that timed out")
                    raise refusal from None
                except WorkEndedError:
                    _log.warning("[models] restarting a text process that works for nobody")
                    raise
                except (EOFError, OSError):
                    running.process.kill()
                    _log.warning(
                        "[models] restarting a text process that died: %s; last output: %s",
                        running.process.wait(),
                        running.process.last_words(),
                    )
                else:
                    if isinstance(answer, Broke):
                        # The request is to blame, as the process does the same for every other one.
                        _log.error("[models] %s", answer.message)
                        failed = InvalidRequestError(answer.message, param=refusal.param)
                        raise refusal if answer.out_of_memory else failed
                    return _expected(answer, expected)
        # Most likely for its memory; a third process would fare no better.
        raise refusal

    @contextmanager
    def _borrowed(self, *, is_long: bool) -> Iterator["_Running"]:
        """A process that nobody else uses meanwhile; replaced if the block leaves it without an answer."""
        running = self._taken(is_long=is_long)
        try:
            yield running
        finally:
            with self._changed:
                if running in self._processes:
                    if running.answers:
                        self._give_back(running)
                    else:
                        self._processes.remove(running)
                        self._start(is_spare=running.is_spare)
            if not running.answers:
                running.process.close()

    def _taken(self, *, is_long: bool) -> "_Running":
        began_s = monotonic()
        with self._changed:
            while self._users:
                check_wanted()
                for running in sorted(self._free, key=lambda each: each.is_spare):
                    if running.is_spare or not is_long:
                        self._free.remove(running)
                        return running
                if failure := self._failure:
                    self._failure = None
                    raise failure
                # Nobody waits long for a process that is being started.
                waits = monotonic() - began_s > SPARE_AFTER_S and all(
                    running.is_ready for running in self._processes
                )
                wants_spare = is_long or waits
                if all(running.is_spare != wants_spare for running in self._processes):
                    self._start(is_spare=wants_spare)
                self._changed.wait(TICK_S)
        raise ShuttingDownError

    def _start(self, *, is_spare: bool) -> None:
        """Start a process; it is free once it is ready."""
        running = _Running(self._folder, is_spare=is_spare)
        self._processes.append(running)
        in_background(partial(self._await, running), f"text-{running.process.pid}")

    def _await(self, running: "_Running") -> None:
        try:
            running.wait_until_ready()
        except EngineError as error:
            with self._changed:
                if running in self._processes:
                    self._processes.remove(running)
                self._failure = error
                self._changed.notify_all()
            running.process.close()
        else:
            with self._changed:
                if running in self._processes:
                    self._give_back(running)

    def _give_back(self, running: "_Running") -> None:
        self._free.append(running)
        self._changed.notify_all()


class _Running:
    """One process and what is said to it. `answers` is false while it owes an answer."""

    def __init__(self, folder: Path, *, is_spare: bool) -> None:
        self.process = SpawnedProcess(MODULE)
        self.is_spare = is_spare
        self.is_ready = False
        self.answers = True
        self._folder = folder
        self._channel: Channel[FromText] = Channel(self.process.socket, FromText)  # type: ignore[arg-type]
        self._channel.send(LoadTokenizer(str(folder), MEMORY_BYTES))

    def wait_until_ready(self) -> None:
        try:
            self.process.socket.settimeout(START_LIMIT_S)
            _expected(self._channel.receive(), Ready)
        except (EOFError, OSError):
            self.process.kill()
            how = self.process.wait()
            raise EngineError(
                f"The text process of the model in {self._folder} did not start: {how}. "
                f"{self.process.last_words()}"
            ) from None
        self.is_ready = True

    def ask(self, request: bytes, limit_s: float) -> FromText:
        """The answer to an encoded request.

        Raises:
            TimeoutError: there is none after `limit_s`.
            WorkEndedError: nobody has wanted it for a while (`owner_queue`).
            EOFError, OSError: the process has ended.
        """
        began_s, is_wanted = monotonic(), still_wanted()
        self.answers = False
        self.process.socket.settimeout(limit_s)
        self._channel.send_encoded(request)
        while True:
            left_s = limit_s - (monotonic() - began_s)
            if left_s <= 0:
                raise TimeoutError
            self.process.socket.settimeout(min(left_s, TICK_S))
            try:
                answer = self._channel.receive()
            except TimeoutError:
                # What takes little is quicker finished than the process started again.
                if monotonic() - began_s > UNWANTED_S and not is_wanted():
                    raise WorkEndedError("nobody waits for the text process") from None
            else:
                self.answers = True
                return answer


def _expected(answer: FromText, expected: type[_Answer]) -> _Answer:
    match answer:
        case Refused(message=message, param=param, code=code):
            raise InvalidRequestError(message, param=param, code=code)
        case TooLong(tokens=count, is_least=is_least):
            raise PromptTooLongError(count, is_least=is_least)
        case Broke(message=message):
            raise EngineError(message)
        case _:
            assert isinstance(answer, expected)
            return answer
