"""What the Open Responses compliance suite asks of the HTTP part, in our own words, all at once."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.adapters.openai.wire import Json, check_response, read_stream
from tests.serving import RunningServer

WEATHER: Json = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the current weather for a location",
    "parameters": {
        "type": "object",
        "properties": {"location": {"type": "string"}},
        "required": ["location"],
    },
}
IMAGE = "data:image/png;base64,iVBORw0KGgo="


def message(role: str, content: Any, **fields: Any) -> Json:
    """A message item."""
    return {"type": "message", "role": role, "content": content} | fields


REQUESTS: dict[str, Json] = {
    "basic": {"input": [message("user", "Say hello in exactly 3 words.")]},
    "phases": {
        "input": [
            message("user", "hi"),
            message("assistant", [{"type": "output_text", "text": "…"}], phase="commentary"),
            message("assistant", [{"type": "output_text", "text": "Hello!"}], phase="final_answer"),
            message("user", "again"),
        ]
    },
    "streaming": {"input": [message("user", "Count from 1 to 5.")], "stream": True},
    "system": {"input": [message("system", "You are a pirate."), message("user", "Say hello.")]},
    "tool": {"input": [message("user", "call one")], "tools": [WEATHER]},
    "image": {
        "input": [
            message(
                "user",
                [
                    {"type": "input_text", "text": "What is in this image?"},
                    {"type": "input_image", "image_url": IMAGE, "detail": "auto"},
                ],
            )
        ]
    },
    "history": {
        "input": [
            message("user", "My name is Alice."),
            message("assistant", "Hello Alice!"),
            message("user", "What is my name?"),
        ]
    },
}


@pytest.fixture(scope="module")
def answers(server: RunningServer) -> dict[str, bytes]:
    """The answers to all requests, asked at the same time."""

    def ask(fields: Json) -> bytes:
        with server.http as http:
            answer = http.post("/v1/responses", json={"model": "scripted"} | fields)
        assert answer.status_code == 200, answer.text
        return answer.content

    with ThreadPoolExecutor(len(REQUESTS)) as pool:
        return dict(zip(REQUESTS, pool.map(ask, REQUESTS.values()), strict=True))


@pytest.mark.parametrize("name", [name for name in REQUESTS if name != "streaming"])
def test_the_answer_is_whole_and_completed(answers: dict[str, bytes], name: str) -> None:
    body = check_response(json.loads(answers[name]))

    assert body["status"] == "completed"
    assert body["output"]
    assert ("function_call" in {item["type"] for item in body["output"]}) == (name == "tool")


def test_the_stream_is_whole_and_completed(answers: dict[str, bytes]) -> None:
    assert read_stream(answers["streaming"])[-1]["type"] == "response.completed"
