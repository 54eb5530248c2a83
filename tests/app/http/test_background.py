"""Background turns over HTTP: accepted at once, followed, polled, cancelled, and untied from their client."""

from typing import Any

import httpx
import pytest

from tests.adapters.openai.wire import check_response, read_stream
from tests.app.http.test_turns import create, refused, stream
from tests.faults.witness import listening
from tests.waiting import until

Json = dict[str, Any]


def begun(http: httpx.Client, text: str, **fields: Any) -> Json:
    """A background turn that was just accepted."""
    body = check_response(create(http, text, background=True, **fields))
    assert (body["status"], body["background"], body["output"]) == ("queued", True, [])
    return body


def read(http: httpx.Client, response_id: str) -> Json:
    """The response as it is now."""
    answer = http.get(f"/v1/responses/{response_id}")
    assert answer.status_code == 200, answer.text
    body: Json = answer.json()
    return body


def ended(http: httpx.Client, response_id: str) -> Json:
    """The response once its turn is over."""
    return until(
        lambda: (
            {} if read(http, response_id)["status"] in ("queued", "in_progress") else read(http, response_id)
        )
    )


def test_a_background_turn_is_answered_as_queued_and_polled_to_its_end(http: httpx.Client) -> None:
    """D-40."""
    body = begun(http, "hi")

    done = check_response(ended(http, body["id"]))

    assert (done["status"], done["output_text"], done["background"]) == ("completed", "Hello", True)
    follow_up = create(http, "hi", previous_response_id=body["id"])
    assert follow_up["status"] == "completed"


def test_it_is_polled_with_its_output_as_far_as_it_has_come(http: httpx.Client) -> None:
    """D-40."""
    body = begun(http, "hang")

    running = until(lambda: read(http, body["id"]) if read(http, body["id"])["output"] else {})

    (item,) = running["output"]
    assert (running["status"], running["output_text"], item["status"]) == (
        "in_progress",
        "Hel",
        "in_progress",
    )
    cancelled = http.post(f"/v1/responses/{body['id']}/cancel").json()
    assert (cancelled["status"], cancelled["output_text"]) == ("cancelled", "Hel")


def test_its_stream_is_queued_first_and_the_same_bytes_afterwards(http: httpx.Client) -> None:
    """D-26, D-40."""
    live = stream(http, "hi", background=True)
    events = read_stream(live)
    address = f"/v1/responses/{events[0]['response']['id']}?stream=true"

    assert [event["type"] for event in events[:3]] == [
        "response.created",
        "response.queued",
        "response.in_progress",
    ]
    assert [event["response"]["status"] for event in events[:3]] == ["queued", "queued", "in_progress"]
    assert events[-1]["type"] == "response.completed"
    assert http.get(address).content == live
    assert live.endswith(http.get(f"{address}&starting_after=2").content)


def test_a_client_that_leaves_does_nothing_to_it(http: httpx.Client) -> None:
    """D-40."""
    with listening(http, "slow", background=True) as listener:
        listener.until("response.queued")
        response_id = listener.response_id

    assert ended(http, response_id)["output_text"] == "Hello"


def test_it_needs_to_be_stored(http: httpx.Client) -> None:
    body = {"model": "scripted", "input": "hi", "background": True, "store": False}

    assert refused(http.post("/v1/responses", json=body), 400)["param"] == "background"


@pytest.mark.parametrize("background", [True, False])
def test_a_cancelled_turn_ends_its_stream_with_one_frame(http: httpx.Client, background: bool) -> None:
    """D-02, D-32, E8: the same when it is read again."""
    with listening(http, "hang", background=background) as listener:
        listener.until("output_text.delta")
        answers = [http.post(f"/v1/responses/{listener.response_id}/cancel").json() for _ in range(2)]
        listener.until("[DONE]")
        told = read_stream(listener.told)

    last = told[-1]
    assert last["type"] == "response.incomplete"
    assert not any(event["type"] == "error" for event in told)
    assert last["response"]["status"] == "cancelled"
    assert (last["response"]["error"], last["response"]["incomplete_details"]) == (None, None)
    # In no frame is the time of expiry, which moves (D-37).
    for answer in (*answers, read(http, listener.response_id)):
        assert {name: value for name, value in answer.items() if name != "expires_at"} == last["response"]
    assert http.get(f"/v1/responses/{listener.response_id}?stream=true").content == listener.told


def test_a_turn_that_has_ended_is_not_changed_by_a_cancel(http: httpx.Client) -> None:
    """D-40, E7."""
    body = create(http, "hi")

    assert http.post(f"/v1/responses/{body['id']}/cancel").json() == body
    refused(http.post(f"/v1/responses/resp_{'0' * 32}/cancel"), 404)


def test_under_one_idempotency_key_a_background_turn_is_begun_once(http: httpx.Client) -> None:
    """T2-26, D-40: running and over."""
    body = {"model": "scripted", "input": "hang", "background": True}
    headers = {"Idempotency-Key": "background"}

    first = http.post("/v1/responses", json=body, headers=headers)
    second = http.post("/v1/responses", json=body, headers=headers)

    assert first.json()["id"] == second.json()["id"]
    assert ("idempotent-replayed" in first.headers, "idempotent-replayed" in second.headers) == (False, True)
    http.post(f"/v1/responses/{first.json()['id']}/cancel").raise_for_status()
