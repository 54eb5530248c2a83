"""The whole thing with the real default model: a conversation, a restart, and the stream read again."""

import json
from pathlib import Path

from openai import OpenAI

from tests.adapters.openai.wire import check_response, read_stream
from tests.app.http.test_turns import Json, refused
from tests.serving import LONG_S, RunningServer, serving, turnlog
from tests.tiny_model import make_tiny_model


def environ(model_cache: Path) -> dict[str, str]:
    """The model's cache, and no signs of life in the streams, however busy the machine is."""
    return {"TURNLOG_CACHE": str(model_cache), "TURNLOG_HEARTBEAT_S": "3600"}


def ask(server: RunningServer, text: str, previous: str | None) -> Json:
    """A greedy answer."""
    client = OpenAI(base_url=f"{server.address}/v1", api_key="none", timeout=100, max_retries=0)
    answer = client.responses.create(
        model="smollm2", input=text, previous_response_id=previous, temperature=0, max_output_tokens=30
    )
    return answer.to_dict()


def test_a_conversation_goes_on_after_a_restart(tmp_path: Path, model_cache: Path) -> None:
    """R-157, R-179: what `make serve` serves."""
    database = tmp_path / "turnlog.db"
    with serving(database, **environ(model_cache)) as server, server.client(timeout_s=LONG_S) as http:
        first = ask(server, "The secret word is banana.", None)
        body = {
            "model": "smollm2",
            "input": "What is the secret word?",
            "previous_response_id": first["id"],
            "temperature": 0,
            "max_output_tokens": 30,
            "stream": True,
        }
        live = http.post("/v1/responses", json=body).content
        second = check_response(read_stream(live)[-1]["response"])
        assert server.stop() == 0

    with serving(database, **environ(model_cache)) as server, server.client(timeout_s=LONG_S) as http:
        assert http.get(f"/v1/responses/{second['id']}?stream=true").content == live
        third = ask(server, "Say the secret word again.", second["id"])

    assert "banana" in second["output_text"].lower()
    assert "banana" in third["output"][0]["content"][0]["text"].lower()
    lines = turnlog("log", third["id"], "--db", str(database), "--json").stdout.splitlines()
    started = next(json.loads(line)["data"] for line in lines if "generation_started" in line)
    # The prompt is told by what it shares with the turn before it, not whole.
    assert started["prompt"]["base"] == second["id"]
    assert started["prompt"]["shared"] > started["prompt"]["tokens"] / 2


def test_any_mlx_model_folder_is_served_under_its_name(tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path / "models" / "tiny")
    with (
        serving(tmp_path / "turnlog.db", "--model", f"tiny={folder}") as server,
        server.client(timeout_s=LONG_S) as http,
    ):
        body = {"model": "tiny", "input": "hi", "max_output_tokens": 5, "seed": 7}
        first, second = (http.post("/v1/responses", json=body).json() for _ in range(2))
        too_long = http.post("/v1/responses", json=body | {"input": "word " * 200, "stream": True})

    assert check_response(first)["status"] == "incomplete"
    assert first["incomplete_details"] == {"reason": "max_output_tokens", "limit": "max_output_tokens"}
    assert first["usage"]["output_tokens"] == 5
    assert second["output_text"] == first["output_text"]
    assert refused(too_long, 400)["code"] == "context_length_exceeded"
