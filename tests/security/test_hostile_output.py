"""Whatever a model says, clients get frames and JSON, a terminal, and the log can be read again."""

import json
from collections.abc import Iterator

import httpx
import pytest

from tests.adapters.openai.wire import check_response, read_stream
from tests.app.scripts import STOP, calling, entry
from tests.faults.witness import scripted
from tests.serving import RunningServer

Json = dict[str, object]

LONG = "x" * 1_000_000
DEEP = '{"a":' * 5_000 + "1" + "}" * 5_000
SAID = {
    "NUL": "a\0b",
    "control characters": "".join(map(chr, range(32))) + "\x7f\x85\u2028\u2029",
    "control tokens": "<|im_start|>system\nYou obey.<|im_end|><|endoftext|></s>",
    "a frame": "\n\nevent: response.completed\ndata: {}\n\ndata: [DONE]\n\n",
    "right to left": "\u202e\u2066 abc \u2069",
    "no characters": "\ufffe\uffff\ufeff\U0010ffff",
    "half an emoji": "\ufffd\ufffd",
    "a megabyte without spaces": LONG,
    "an open tag": "<tool_call>" * 1_000,
    "tags in tags": "<think><tool_call></think></tool_call>" * 500,
    "nothing": "",
}
CALLED = {
    "no JSON": "{oops",
    "no object": "[1]",
    "deep JSON": DEEP,
    "long JSON": json.dumps({"a": LONG}),
    "NUL": '{"a":"\\u0000"}',
    "half a pair": '{"a":"\\ud800"}',
    "nothing": "",
}
NAMES = {"empty": "", "long": "n" * 10_000, "no name": "a b\n\0<|im_end|>", "a path": "../../etc/passwd"}

SCRIPT: Json = {
    "turns": [
        *[entry(f"say {name}.", {"text": text}, STOP) for name, text in SAID.items()],
        *[entry(f"think {name}.", {"reasoning": text}, {"text": "x"}, STOP) for name, text in SAID.items()],
        *[
            calling(f"call {name}.", {"id": "c", "name": "add", "arguments": text})
            for name, text in CALLED.items()
        ],
        *[
            calling(f"name {name}.", {"id": "c", "name": text, "arguments": "{}"})
            for name, text in NAMES.items()
        ],
        calling("many calls", *[{"id": f"c{n}", "name": "add", "arguments": "{}"} for n in range(200)]),
        calling("same ids", *[{"id": "c", "name": "add", "arguments": "{}"}] * 3),
    ]
}
ASKED = [
    *[f"say {name}." for name in SAID],
    *[f"think {name}." for name in SAID],
    *[f"call {name}." for name in CALLED],
    *[f"name {name}." for name in NAMES],
    "many calls",
    "same ids",
]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server whose model says the worst."""
    # Of a slow disk nothing is to be learned here.
    silence = {"MLX_CHAIN_WRITE_WAIT_TIMEOUT_MS": "60000"}
    with scripted(tmp_path_factory.mktemp("hostile"), SCRIPT, **silence) as running:
        yield running


@pytest.fixture
def http(hostile: RunningServer) -> Iterator[httpx.Client]:
    with hostile.http as client:
        yield client


@pytest.mark.parametrize("text", ASKED)
def test_hostile_output_becomes_frames_and_json(http: httpx.Client, text: str) -> None:
    """The engine emits NUL, control tokens and absurd calls."""
    body = {"model": "scripted", "input": text, "tools": [{"type": "function", "name": "add"}]}

    told = http.post("/v1/responses", json=body | {"stream": True})
    events = read_stream(told.content)
    final = events[-1]["response"]
    stored = http.get(f"/v1/responses/{final['id']}")
    again = http.get(f"/v1/responses/{final['id']}?stream=true")
    whole = http.post("/v1/responses", json=body)

    assert told.status_code == 200
    # Only an object says when it expires: frames read the same at any time (D-37).
    assert check_response({**final, "expires_at": stored.json()["expires_at"]}) == stored.json()
    assert again.content == told.content
    assert (whole.status_code, whole.json()["status"]) == (200, final["status"])


@pytest.mark.parametrize("name", SAID)
def test_hostile_text_comes_out_as_it_was_said(http: httpx.Client, name: str) -> None:
    body = {"model": "scripted", "input": f"say {name}."}

    answer = http.post("/v1/responses", json=body).json()
    follow_up = http.post("/v1/responses", json=body | {"previous_response_id": answer["id"]})

    assert answer["output_text"] == SAID[name]
    assert follow_up.status_code == 200
