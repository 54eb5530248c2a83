"""Everything that is refused is refused in one envelope, status, code and field named (R-003, D-06)."""

from typing import Any

import httpx
import pytest

from tests.app.http.test_turns import Json, refused

LEAST: Json = {"model": "scripted", "input": "hi"}


def post(http: httpx.Client, **fields: Any) -> httpx.Response:
    """A request with these fields."""
    return http.post("/v1/responses", json=LEAST | fields)


def test_an_unknown_model_is_named_with_those_that_are_served(http: httpx.Client) -> None:
    """R-058."""
    error = refused(post(http, model="gpt-5"), 404)

    assert (error["type"], error["code"], error["param"]) == ("not_found_error", "model_not_found", "model")
    assert "'gpt-5'" in error["message"]
    assert "scripted" in error["message"]


def test_an_unknown_previous_response_is_not_found(http: httpx.Client) -> None:
    """R-122."""
    error = refused(post(http, previous_response_id="resp_unknown"), 404)

    assert (error["code"], error["param"]) == ("previous_response_not_found", "previous_response_id")
    assert "resp_unknown" in error["message"]


@pytest.mark.parametrize("path", ["", "?stream=true", "/events"])
def test_an_unknown_response_is_not_found(http: httpx.Client, path: str) -> None:
    error = refused(http.get(f"/v1/responses/resp_unknown{path}"), 404)

    assert (error["type"], error["code"]) == ("not_found_error", "response_not_found")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": ""}, "input"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"temperature": 3}, "temperature"),
        ({"top_p": -1}, "top_p"),
        ({"metadata": {"retention_seconds": 1}}, "metadata.retention_seconds"),
    ],
)
def test_a_wrong_value_is_refused_by_its_field(http: httpx.Client, fields: Json, param: str) -> None:
    """R-017, R-023, D-11."""
    error = refused(post(http, **fields), 400)

    assert (error["type"], error["param"]) == ("invalid_request_error", param)


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_that_is_too_long_is_refused_before_any_frame(http: httpx.Client, *, stream: bool) -> None:
    """R-235, R-240, D-34, G-119, D2."""
    error = refused(post(http, input="word " * 200, stream=stream), 400)

    assert (error["code"], error["param"]) == ("context_length_exceeded", None)
    assert "context_length_exceeded" in error["message"]


@pytest.mark.parametrize(
    ("path", "param"),
    [
        ("/v1/responses/resp_x?stream=true&stream=false", "stream"),
        ("/v1/responses/resp_x?stream=true&starting_after=1&starting_after=2", "starting_after"),
        ("/v1/audit/responses/resp_x?include=prompt_ids&include=prompt_ids", "include"),
        ("/v1/audit/compare?a=resp_x&a=resp_y&b=resp_z", "a"),
        ("/v1/audit/export?after=1&after=2", "after"),
        ("/v1/audit/responses?limit=1&limit=2", "limit"),
    ],
)
def test_a_parameter_that_is_given_twice_is_refused(http: httpx.Client, path: str, param: str) -> None:
    assert refused(http.get(path), 400)["param"] == param


def test_a_list_that_an_sdk_repeats_is_no_parameter_given_twice(http: httpx.Client) -> None:
    path = "/v1/responses/resp_x?include[]=a&include[]=b"

    assert refused(http.get(path), 404)["code"] == "response_not_found"


def test_many_metadata_filters_are_refused_and_never_reach_the_store(http: httpx.Client) -> None:
    query = {f"metadata.k{number}": "v" for number in range(1_100)}

    error = refused(http.get("/v1/audit/responses", params=query), 400)

    assert (error["param"], "at most 16" in error["message"]) == ("metadata", True)


@pytest.mark.parametrize("route", ["/v1/responses/resp_x/replay", "/v1/models/load"])
def test_an_operators_body_is_no_deeper_than_any_other(http: httpx.Client, route: str) -> None:
    body = b'{"set":{"a":' + b"[" * 5_000 + b"]" * 5_000 + b"}}"

    answer = http.post(route, content=body, headers={"content-type": "application/json"})

    assert refused(answer, 400)["code"] == "json_too_deep"


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, "invalid_json"),
        (b"[" * 100_000, 400, "json_too_deep"),
        (b"[" * 5_000 + b"]" * 5_000, 400, "json_too_deep"),
        (b'{"input":"' + b"x" * 10 * 1024 * 1024 + b'"}', 413, "body_too_large"),
    ],
)
def test_a_body_that_cannot_be_read_is_refused(
    http: httpx.Client, body: bytes, status: int, code: str
) -> None:
    """R-002, D-06."""
    answer = http.post("/v1/responses", content=body, headers={"content-type": "application/json"})

    assert refused(answer, status)["code"] == code


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", None])
def test_a_body_that_is_not_declared_as_json_is_refused(http: httpx.Client, content_type: str | None) -> None:
    """D-17."""
    headers = {"content-type": content_type} if content_type else {}

    answer = http.post("/v1/responses", content=b'{"model":"scripted","input":"hi"}', headers=headers)

    assert refused(answer, 415)["code"] == "unsupported_media_type"


def test_json_with_a_charset_is_json(http: httpx.Client) -> None:
    headers = {"content-type": "application/json; charset=utf-8"}

    answer = http.post("/v1/responses", content=b'{"model":"scripted","input":"hi"}', headers=headers)

    assert answer.status_code == 200


def test_an_unknown_route_is_not_found(http: httpx.Client) -> None:
    """R-007, D-06, D16."""
    error = refused(http.get("/v1/nothing"), 404)

    assert error["message"] == "Route not found: GET /v1/nothing"


def test_another_method_is_not_allowed(http: httpx.Client) -> None:
    """R-001, D-06."""
    answer = http.put("/v1/responses")

    assert refused(answer, 405)["code"] == "method_not_allowed"
    assert "POST" in answer.headers["allow"]


@pytest.mark.parametrize("after", ["x", "1.5", ""])
def test_a_stream_is_resumed_after_a_number_only(http: httpx.Client, after: str) -> None:
    answer = http.get(f"/v1/responses/resp_unknown?stream=true&starting_after={after}")

    assert refused(answer, 400)["param"] == "starting_after"


def test_health_and_models_are_there(http: httpx.Client) -> None:
    """R-006, R-007, D-16."""
    (model,) = http.get("/v1/models").json()["data"]

    assert (model["id"], model["object"], model["owned_by"]) == ("scripted", "model", "turnlog")
    assert isinstance(model["created"], int)
    assert http.get("/health").json() == {"status": "ok"}
    assert http.get("/v1/health").json() == {"status": "ok"}
    assert http.get("/").json() == {"service": "turnlog"}
    assert (http.head("/").status_code, http.head("/").content) == (200, b"")
    assert http.get("/v1/models/scripted").json() == model
    assert refused(http.get("/v1/models/gpt-5"), 404)["code"] == "model_not_found"
