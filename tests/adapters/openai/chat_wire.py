"""Reads streams of Chat Completions as clients do, and holds them against the SDK's types."""

import json
from typing import Any

from openai.types.chat import ChatCompletion, ChatCompletionChunk

Json = dict[str, Any]


def read_chunks(body: bytes) -> list[Json]:
    """The data of each frame, after checking that the stream is well formed and fits the SDK's types.

    Every frame is one `data:` line, and `[DONE]` is the last.
    """
    *frames, done, rest = body.decode().split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    return [_read(frame) for frame in frames]


def _read(frame: str) -> Json:
    assert frame.startswith("data: ")
    assert len(frame.splitlines()) == 1, "some clients split frames at other line ends too"
    chunk: Json = json.loads(frame.removeprefix("data: "))
    # The SDK's chunks know calls of functions only, though OpenAI streams those of custom tools as well.
    if "error" not in chunk and '"custom":' not in frame:
        ChatCompletionChunk.model_validate(chunk, strict=True)
    return chunk


def check_completion(body: Json) -> Json:
    """The completion, after checking it against the SDK's type."""
    ChatCompletion.model_validate(body, strict=True)
    return body


def assembled(chunks: list[Json]) -> Json:
    """The completion that the chunks add up to, as clients put them together."""
    *told, usage = chunks
    message: Json = {"role": "assistant", "content": "", "refusal": None}
    calls: list[Json] = []
    logprobs: list[Json] = []
    for chunk in told:
        (choice,) = chunk["choices"]
        delta = choice["delta"]
        for name in ("content", "reasoning_content"):
            if name in delta:
                message[name] = message.get(name, "") + delta[name]
        logprobs += (choice["logprobs"] or {}).get("content", [])
        for call in delta.get("tool_calls", ()):
            _add_call(calls, call)
    if calls:
        message |= {"tool_calls": calls, "content": message["content"] or None}
    (last,) = told[-1]["choices"]
    choice = {"index": 0, "message": message, "finish_reason": last["finish_reason"]}
    head = {name: told[-1][name] for name in ("id", "created", "model", "service_tier", "system_fingerprint")}
    return {**head, "choices": [choice], "usage": usage["usage"], "logprobs": logprobs}


def _add_call(calls: list[Json], piece: Json) -> None:
    index = piece.pop("index")
    if index == len(calls):
        calls.append(piece)
        return
    call = calls[index]
    kind = call["type"]
    (field,) = piece[kind]
    call[kind][field] += piece[kind][field]
