"""The process that renders prompts and compiles constraints for one model. `SpawnedProcess` runs it.

It answers one request after the other. The server ends it when a request takes too long, the kernel when it
takes too much memory.
"""

import os
import resource
import sys
from pathlib import Path
from time import perf_counter
from traceback import extract_tb

from turnlog.adapters.engine_process.channel import Channel
from turnlog.adapters.engine_process.messages import (
    Broke,
    CompileCalls,
    Compiled,
    CompileJson,
    Decode,
    Decoded,
    FromText,
    LoadTokenizer,
    Ready,
    Refused,
    Render,
    Rendered,
    TooLong,
    ToText,
)
from turnlog.adapters.mlx.hosted import connected
from turnlog.domain import tokens
from turnlog.domain.errors import EngineError, InvalidRequestError, PromptTooLongError
from turnlog.domain.ports import CallConstraint, JsonConstraint

LONG_S = 0.5
"""A request that takes longer leaves a lot of freed memory behind."""


class TextServer:
    """Renders, encodes and compiles with the tokenizer and the chat template in a folder."""

    def __init__(self, folder: Path) -> None:
        from turnlog.adapters.mlx.chat_format import ChatFormat
        from turnlog.adapters.mlx.constraints import ConstraintCompiler
        from turnlog.adapters.mlx.model import load_tokenizer_of
        from turnlog.adapters.mlx.prompt import PromptRenderer

        tokenizer = load_tokenizer_of(folder)
        chat_format = ChatFormat(tokenizer)
        self._renderer = PromptRenderer(tokenizer, chat_format)
        self._constraints = ConstraintCompiler(tokenizer, chat_format)

    def answer(self, request: ToText) -> FromText:
        """What a request is answered; whatever it makes raise is an answer too."""
        try:
            return self._answer(request)
        except PromptTooLongError as too_long:
            return TooLong(too_long.tokens, too_long.is_least)
        except InvalidRequestError as refusal:
            return Refused(refusal.message, refusal.param, refusal.code)
        except Exception as error:
            frame = extract_tb(error.__traceback__)[-1]
            place = f"{type(error).__name__} at {Path(frame.filename).name}:{frame.lineno}"
            return Broke(f"The text process failed with {place}.", isinstance(error, MemoryError))

    def _answer(self, request: ToText) -> FromText:
        match request:
            case Render():
                prompt = self._renderer.render(
                    request.messages,
                    tools=request.tools,
                    effort=request.effort,
                    recorded={index: tokens.unpack(packed) for index, packed in request.recorded.items()},
                    most_tokens=request.most_tokens,
                )
                return Rendered(tokens.pack(prompt.ids), prompt.effort)
            case Decode(ids=packed):
                return Decoded(self._renderer.decode_tokens(tokens.unpack(packed)))
            case CompileJson(schema=schema, tools=tools, many=many):
                return Compiled(self._constraints.compile(JsonConstraint(schema, tools, many)).constraint)
            case CompileCalls(tools=tools, many=many):
                return Compiled(self._constraints.compile(CallConstraint(tools, many)).constraint)
            case LoadTokenizer():
                raise AssertionError("the tokenizer is already loaded")


def main() -> None:
    """Serve until the server is gone."""
    channel: Channel[ToText] = connected(ToText)  # type: ignore[arg-type]
    first = channel.receive()
    assert isinstance(first, LoadTokenizer)
    from turnlog.adapters.mlx.runtime import release_memory

    # Before the template is looked at: some texts take memory where they are compiled.
    _bound_memory(first.memory_bytes)
    try:
        server = TextServer(Path(first.folder))
    except EngineError as error:
        channel.send(Broke(error.message))
        return
    channel.send(Ready())
    while True:
        request = channel.receive()
        began_s = perf_counter()
        channel.send(server.answer(request))
        if perf_counter() - began_s > LONG_S:
            release_memory()


def _bound_memory(more_bytes: int) -> None:
    """Let this process take that much memory beside what it has. Linux only: macOS keeps no such limit."""
    if sys.platform == "linux":
        status = Path("/proc/self/status").read_text()
        held_kb = int(status.partition("VmData:")[2].split()[0])
        most_bytes = held_kb * 1024 + more_bytes
        resource.setrlimit(resource.RLIMIT_DATA, (most_bytes, most_bytes))


if __name__ == "__main__":
    try:
        main()
    except (EOFError, OSError):
        os._exit(0)
