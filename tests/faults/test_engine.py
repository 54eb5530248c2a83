"""An engine that raises, hangs or stops at any step: the turn ends once, whole, and the next one runs."""

from collections.abc import Iterator

import httpx
import pytest

from tests.adapters.openai.wire import read_stream
from tests.app.http.test_turns import create, refused, stream
from tests.app.scripts import ADD_1, HELLO, STOP, entry
from tests.faults.witness import (
    Json,
    acknowledged,
    continued,
    error_code,
    events,
    names,
    replay,
    scripted,
)

STEPS: list[Json] = [{"reasoning": "h"}, {"reasoning": "m"}, {"text": "Hel"}, {"text": ""}, {"text": "lo"}]
PLACES = range(len(STEPS) + 1)

DRIPS: list[Json] = [{"text": "x "}, {"sleep_ms": 20}]
RAISES: Json = {"raise": "it broke"}
HANGS: Json = {"hang": True}
BAD_END: Json = {"end": {"finish_reason": "error", "tool_calls": [ADD_1 | {"status": "ok"}]}}

FAULTS: dict[str, tuple[list[Json], str]] = {
    "raises": ([RAISES], "error"),
    "hangs": ([HANGS], "engine_timeout"),
    "stops": ([], "stream_exhausted"),
    "ends badly": ([BAD_END], "finish_reason_error"),
}
"""What happens in place of the next step, and the reason by which the turn fails."""

SCRIPT: Json = {
    "concurrency": 1,
    "turns": [
        *(
            entry(f"{fault} at {place}!", *STEPS[:place], *steps)
            for fault, (steps, _) in FAULTS.items()
            for place in PLACES
        ),
        entry("drips", *DRIPS * 10_000, STOP),
        HELLO | {"match": "hi"},
    ],
}

TOKEN_TIMEOUT_S, TURN_TIMEOUT_S = "0.2", "1.5"


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of a server that runs one turn at a time and does not wait long for its engine."""
    environ = {"TURNLOG_TOKEN_TIMEOUT_S": TOKEN_TIMEOUT_S, "TURNLOG_TURN_TIMEOUT_S": TURN_TIMEOUT_S}
    folder = tmp_path_factory.mktemp("engine")
    with scripted(folder, SCRIPT, **environ) as server, server.http as client:
        yield client


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("fault", FAULTS)
def test_wherever_an_engine_fails_its_turn_ends_once_and_the_next_one_runs(
    http: httpx.Client, fault: str, place: int
) -> None:
    """R-317 … R-324, D-12, G-130 … G-132, G-140: at every step of the turn."""
    told = stream(http, f"{fault} at {place}!")
    after = create(http, "hi")

    frames = read_stream(told)
    failed = frames[-1]["response"]
    stored = acknowledged(http, failed["id"], "failed")
    assert _times(frames, "failed") == 1 and _times(frames, "completed") == 0
    assert _places(frames, "output_item.added") == _places(frames, "output_item.done")
    assert _places(frames, "content_part.added") == _places(frames, "content_part.done")
    assert failed["incomplete_details"] == {"reason": FAULTS[fault][1]}
    assert stored[-1]["data"]["reason"] == FAULTS[fault][1]
    assert names(stored).count("failed") == 1 and "committed" not in names(stored)
    assert replay(http, failed["id"]) == told
    assert error_code(continued(http, failed["id"])) == (400, "previous_response_not_completed")
    assert after["status"] == "completed"


def _times(frames: list[Json], name: str) -> int:
    return sum(frame["type"] == f"response.{name}" for frame in frames)


def _places(frames: list[Json], name: str) -> list[int]:
    """The output items that frames of that name are about."""
    return [frame["output_index"] for frame in frames if frame["type"] == f"response.{name}"]


@pytest.mark.parametrize(
    ("fault", "status", "code"),
    [
        ("raises", 500, "server_error"),
        ("stops", 500, "server_error"),
        ("ends badly", 500, "server_error"),
        ("hangs", 504, "engine_timeout"),
    ],
)
def test_a_client_that_waits_for_json_gets_a_status_that_says_what_kind_of_failure_it_was(
    http: httpx.Client, fault: str, status: int, code: str
) -> None:
    """D-12, D-32: and the id under which the log of the turn is found."""
    answer = http.post("/v1/responses", json={"model": "scripted", "input": f"{fault} at 3!"})

    assert refused(answer, status)["code"] == code
    stored = acknowledged(http, answer.headers["x-response-id"], "failed")
    assert stored[-1]["data"]["reason"] == FAULTS[fault][1]


def test_an_engine_that_never_comes_to_an_end_is_stopped(http: httpx.Client) -> None:
    """`TURNLOG_TURN_TIMEOUT_S`: each token comes in time, the turn does not."""
    frames = read_stream(stream(http, "drips"))

    assert frames[-1]["response"]["incomplete_details"] == {"reason": "engine_timeout"}
    assert _times(frames, "output_text.delta") > 1
    assert create(http, "hi")["status"] == "completed"


def test_an_engine_that_refuses_a_turn_at_once_fails_that_turn_only(http: httpx.Client) -> None:
    """It raises where it is given the turn, not while it plays it: no entry of the script fits."""
    frames = read_stream(stream(http, "unheard of"))

    assert [frame["type"] for frame in frames] == [
        "response.created",
        "response.in_progress",
        "error",
        "response.failed",
    ]
    assert "unheard of" in frames[-1]["response"]["error"]["message"]
    assert names(events(http, frames[0]["response"]["id"])) == ["created", "generation_started", "failed"]
    assert create(http, "hi")["status"] == "completed"
