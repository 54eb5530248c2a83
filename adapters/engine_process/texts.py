"""The process that renders, encodes and compiles for one model: bounded in memory, each request in time."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Final, TypeVar

from msgspec import Struct

from turnlog.adapters.engine_process.channel import Channel
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
)
from turnlog.adapters.engine_process.spawned import SpawnedProcess
from turnlog.domain import tokens
from turnlog.domain.errors import (
    EngineError,
    InvalidRequestError,
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

MEMORY_BYTES: Final = 2 * 2**30
"""What tokenizer and request may take together, beside the libraries; Linux keeps the process to it."""

_Answer = TypeVar("_Answer", bound=Struct)


class TextProcess:
    """Renders, encodes and compiles for the model in `folder`. Any thread; one request after the other.

    A process that is too slow, or dies, is started again. It lives as long as one engine uses it (`retain`),
    so that it survives a crash of the engine process.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._users = 0
        self._running: _Running | None = None
        self._asking = Lock()
        # Guards which process there is.
        self._door = Lock()

    @property
    def pid(self) -> int | None:
        """The process id, while there is a process."""
        running = self._running
        return running.process.pid if running else None

    def retain(self) -> None:
        """One more engine uses it; the process begins to start if there is none."""
        with self._door:
            self._users += 1
            self._running = self._running or _Running(self._folder)

    def release(self) -> None:
        """One engine less; with the last one the process ends."""
        with self._door:
            self._users -= 1
            if self._users == 0 and (running := self._running):
                self._running = None
                running.process.close()

    def wait_until_ready(self) -> None:
        """Wait until the tokenizer is loaded.

        Raises:
            EngineError: it cannot be used.
        """
        with self._asking:
            self._present().wait_until_ready()

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Tool],
        effort: str | None,
        recorded: Mapping[int, TokenIds],
    ) -> Prompt:
        """See `InferenceEngine.render`."""
        packed = {index: tokens.pack(ids) for index, ids in recorded.items()}
        request = Render(tuple(messages), tuple(tools), effort, packed)
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
        with self._asking:
            for _ in range(2):
                running = self._present()
                running.wait_until_ready()
                try:
                    answer = running.ask(request, limit_s)
                except TimeoutError:
                    self._replace(running)
                    _log.warning("[models] restarting a text process that timed out")
                    raise refusal from None
                except (EOFError, OSError):
                    self._replace(running)
                    _log.warning(
                        "[models] restarting a text process that died: %s; last output: %s",
                        running.process.wait(),
                        running.process.last_words(),
                    )
                else:
                    return _expected(answer, expected)
        # Most likely for its memory; a third process would fare no better.
        raise refusal

    def _present(self) -> "_Running":
        if running := self._running:
            return running
        raise ShuttingDownError

    def _replace(self, running: "_Running") -> None:
        running.process.close()
        with self._door:
            if self._running is running:
                self._running = _Running(self._folder)


class _Running:
    """One process and what is said to it."""

    def __init__(self, folder: Path) -> None:
        self.process = SpawnedProcess(MODULE)
        self._folder = folder
        self._channel: Channel[FromText] = Channel(self.process.socket, FromText)  # type: ignore[arg-type]
        self._channel.send(LoadTokenizer(str(folder), MEMORY_BYTES))
        self._ready = False

    def wait_until_ready(self) -> None:
        if self._ready:
            return
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
        self._ready = True

    def ask(self, request: Struct, limit_s: float) -> FromText:
        self.process.socket.settimeout(limit_s)
        self._channel.send(request)
        return self._channel.receive()


def _expected(answer: FromText, expected: type[_Answer]) -> _Answer:
    match answer:
        case Refused(message=message, param=param, code=code):
            raise InvalidRequestError(message, param=param, code=code)
        case Broke(message=message):
            raise EngineError(message)
        case _:
            assert isinstance(answer, expected)
            return answer
