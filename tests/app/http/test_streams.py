"""Streams beyond their frames: signs of life, padding, and readers that take nothing."""

import json
import re
import socket
from collections.abc import Iterator

import httpx
import pytest

from tests.adapters.openai.wire import read_stream
from tests.app.http.test_turns import create, refused, stream
from tests.app.scripts import HELLO, STOP, entry, write_script
from tests.serving import RunningServer, serving
from tests.waiting import SOON_S, received

BIG = "x" * 100_000


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server that gives a sign of life after 20 ms of silence and cuts off readers after 100 ms."""
    folder = tmp_path_factory.mktemp("impatient")
    script = {
        "turns": [
            entry("slow", {"text": "Hel"}, {"sleep_ms": 300}, {"text": "lo"}, STOP),
            entry("flood", *[{"text": BIG}] * 100, STOP),
            HELLO,
        ]
    }
    arguments = ("--engine", "scripted", "--script", str(write_script(folder, script)))
    environ = {"TURNLOG_HEARTBEAT_S": "0.02", "MLX_SSE_DRAIN_TIMEOUT_MS": "100"}
    with serving(folder / "turnlog.db", *arguments, **environ) as running:
        yield running


def test_a_silent_stream_repeats_its_in_progress_frame_under_the_last_number(
    impatient: RunningServer,
) -> None:
    """D5, D6, D7: and the log knows nothing of it."""
    with impatient.http as http:
        live = stream(http, "slow").decode()
        response_id = json.loads(live.split("data: ")[1].split("\n")[0])["response"]["id"]
        stored = http.get(f"/v1/responses/{response_id}?stream=true").content.decode()

    beats = [frame for frame in live.split("\n\n") if frame.startswith("event: response.in_progress")][1:]
    numbers = {int(number) for beat in beats for number in re.findall(r'"sequence_number":(\d+)', beat)}
    assert beats
    # The message had begun: created, in_progress, item added, part added, one delta.
    assert numbers == {4}
    for beat in beats:
        live = live.replace(f"{beat}\n\n", "", 1)
    assert live == stored
    read_stream(stored.encode())


def test_a_reader_that_takes_nothing_is_cut_off_and_its_turn_goes_on(impatient: RunningServer) -> None:
    """R-307, R-309, R-310, D-25, G-139: a slow reader never slows the engine."""
    host, port = impatient.address.removeprefix("http://").split(":")
    body = b'{"model":"scripted","input":"flood","stream":true}'
    head = "POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    with socket.socket() as stalled:
        stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stalled.connect((host, int(port)))
        stalled.sendall(request)
        told = received(lambda: stalled.recv(1024), b'"object"')
        response_id = re.findall(r'"id":"(resp_[0-9a-f]{32})"', told.decode())[0]

        with impatient.http as http:
            events = read_stream(http.get(f"/v1/responses/{response_id}?stream=true").content)

        assert events[-1]["response"]["status"] == "completed"
        assert len(events[-1]["response"]["output_text"]) == 100 * len(BIG)
        assert not reaches_its_end(stalled)


def reaches_its_end(stalled: socket.socket) -> bool:
    """Whether a connection that was cut off can still be read to its proper end."""
    stalled.settimeout(SOON_S)
    rest = b""
    try:
        while chunk := stalled.recv(1 << 20):
            rest = (rest + chunk)[-100:]
    except ConnectionError:
        return False
    return rest.endswith(b"0\r\n\r\n")


def test_deltas_are_padded_if_the_client_wants_that_and_the_log_has_no_padding(http: httpx.Client) -> None:
    """D-35."""
    plain = stream(http, "hi")
    padded = stream(http, "hi", stream_options={"include_obfuscation": True})
    events = read_stream(padded)
    deltas = [event for event in events if event["type"].endswith(".delta")]
    address = f"/v1/responses/{events[0]['response']['id']}?stream=true"

    assert b"obfuscation" not in plain
    assert {(len(event["delta"]) + len(event["obfuscation"])) % 16 for event in deltas} == {0}
    assert re.sub(rb',"obfuscation":"\w*"', b"", padded) == http.get(address).content
    again = read_stream(http.get(f"{address}&include_obfuscation=true").content)
    assert all("obfuscation" in event for event in again if event["type"].endswith(".delta"))


def test_a_text_format_and_reasoning_are_echoed(http: httpx.Client) -> None:
    """D-03, B15."""
    options = {"text": {"verbosity": "low"}, "reasoning": {"effort": "low"}, "truncation": "auto"}
    body = http.post("/v1/responses", json={"model": "scripted", "input": "hi"} | options).json()

    assert body["text"] == {"format": {"type": "text"}, "verbosity": "low"}
    assert body["reasoning"] == {"effort": "low", "summary": None}
    assert body["truncation"] == "auto"


def test_the_oldest_messages_are_left_out_if_the_client_allows_it(http: httpx.Client) -> None:
    """`truncation: auto`."""
    long = [{"role": "user", "content": "word " * 120}, {"role": "assistant", "content": "ok"}]
    items = [{"role": "system", "content": "Be kind."}, *long, {"role": "user", "content": "hi"}]

    assert refused(http.post("/v1/responses", json={"model": "scripted", "input": [*long, *items]}), 400)
    body = create(http, [*long, *items], truncation="auto")

    log = http.get(f"/v1/responses/{body['id']}/events").json()["data"]
    assert log[1]["data"]["truncated_messages"] == 2
    assert len(log[0]["data"]["input"]) == 6


def test_even_the_newest_message_must_fit(http: httpx.Client) -> None:
    body = {"model": "scripted", "input": "word " * 250, "truncation": "auto"}

    assert refused(http.post("/v1/responses", json=body), 400)["code"] == "context_length_exceeded"
