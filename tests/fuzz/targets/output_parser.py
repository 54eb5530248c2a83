"""Target: what a model says. However it is cut, it means the same."""

from functools import partial
from types import SimpleNamespace

from tests.fuzz.pieces import cut, text_of
from turnlog.adapters.engine_process.messages import Shape
from turnlog.adapters.mlx.chat_format import ANSWER, CALL, THINKING, Markers
from turnlog.adapters.mlx.output_parser import OutputParser
from turnlog.adapters.mlx.toolparse import CallParser, read_forced
from turnlog.domain.ports import ReasoningChunk, TextChunk

MARKERS: Markers = {
    ANSWER: (("<think>", THINKING), ("</think>", ANSWER), ("<tool_call>", CALL)),
    THINKING: (("</think>", ANSWER), ("<think>", THINKING), ("<tool_call>", CALL)),
    CALL: (("</tool_call>", ANSWER),),
}
WORDS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "END", "EN", '{"name":"a"', ',"arguments":{}}')
_SHAPES: tuple[Shape, ...] = ("free", "json", "calls", "json or calls")
_DIALECT = SimpleNamespace(call_start="<tool_call>", call_end="</tool_call>")
_read = partial(CallParser(SimpleNamespace(tool_parser=None)).read, tools=[])


def one(given: bytes) -> None:
    """Judge one text."""
    text, cuts = text_of(given[1:], WORDS)
    kind = given[0] if given else 0
    shape = _SHAPES[kind % 4]
    stop = ("END",) if kind & 4 else ()
    begins_with = THINKING if kind & 8 else ANSWER

    def said(pieces: list[str]) -> tuple[object, ...]:
        parse = _read if shape == "free" else partial(read_forced, chat_format=_DIALECT)  # type: ignore[arg-type]
        parser = OutputParser(MARKERS, begins_with=begins_with, stop=stop, parse=parse, shape=shape)
        chunks = []
        for piece in pieces:
            if not parser.stopped:
                chunks += parser.receive(piece)
        chunks += parser.end()
        shown = "".join(chunk.text for chunk in chunks if isinstance(chunk, TextChunk))
        thought = "".join(chunk.text for chunk in chunks if isinstance(chunk, ReasoningChunk))
        assert all(chunk.text for chunk in chunks)
        return shown, thought, parser.text, parser.thought, parser.calls, parser.stopped

    assert said(cut(text, cuts)) == said([text])
