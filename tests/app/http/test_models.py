"""The routes of models: what they show, and what an operator changes by them."""

import json
from collections.abc import Iterator
from urllib.parse import quote

import httpx
import pytest
from openai import OpenAI

from tests.app.declared import WEIGHT_BYTES, saying
from tests.app.http.test_turns import Json, create, refused
from tests.security.sockets import head, rest
from tests.serving import RunningServer, connected, serving
from turnlog.app.http.models import model_object
from turnlog.app.models.status import ModelStatus
from turnlog.domain.owners import LOCAL, Caller, Role

ROUTES = ("load", "unload", "swap")


@pytest.fixture(scope="module")
def models_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server with models that nobody has asked for. Each test has names of its own."""
    folder = tmp_path_factory.mktemp("models")
    options = saying(folder, cold="cold", a="a", also_a="a", left="left", right="right", untouched="u")
    with serving(folder / "turnlog.db", *options) as running:
        yield running


@pytest.fixture
def models(models_server: RunningServer) -> Iterator[httpx.Client]:
    """A client of it."""
    with models_server.http as client:
        yield client


NO_PROCESS: Json = {
    "process_id": None,
    "memory_bytes": 0,
    "restarts": 0,
    "last_crash": None,
    "unavailable": None,
    "permits": 0,
    "queue_limit": 512,
    "loads": [],
}
"""Of a model without a process of its own that has never crashed."""


def told(http: httpx.Client, name: str) -> Json:
    """A model's object."""
    answer = http.get(f"/v1/models/{name}")
    assert answer.status_code == 200
    body: Json = answer.json()
    return body


def test_a_model_is_declared_until_it_is_first_asked_for(models: httpx.Client) -> None:
    """R-006, D-16."""
    before = told(models, "cold")

    create(models, "hi", model="cold")

    after = told(models, "cold")
    assert before == {
        "id": "cold",
        "object": "model",
        "created": before["created"],
        "owned_by": "turnlog",
        "state": "declared",
        "aliases": [],
        "weight_bytes": WEIGHT_BYTES,
        "capacity": 1,
        "defaults": {},
        "instance_id": None,
        "active_turns": 0,
        "queued_turns": 0,
        **NO_PROCESS,
    }
    changed = {name for name in before if before[name] != after[name]} - {"created"}
    assert changed == {"state", "instance_id", "capacity", "memory_bytes", "loads"}
    assert (after["state"], type(after["instance_id"])) == ("resident", int)


def test_every_declared_model_is_listed_in_the_order_of_declaration(models: httpx.Client) -> None:
    """R-006: loaded or not; the list and the single model say the same."""
    listed = models.get("/v1/models").json()

    names = ["cold", "a", "also_a", "left", "right", "untouched"]
    assert listed == {"object": "list", "data": [told(models, name) for name in names]}


def test_a_model_is_loaded_unloaded_and_loaded_again_by_its_next_request(models: httpx.Client) -> None:
    """Under all its names."""

    def states() -> tuple[str, str]:
        return told(models, "a")["state"], told(models, "also_a")["state"]

    loaded = models.post("/v1/models/load", json={"name": "a"}).json()
    assert (loaded, states()) == (told(models, "a"), ("resident", "resident"))
    assert (loaded["id"], loaded["aliases"]) == ("a", ["also_a"])

    unloaded = models.post("/v1/models/unload", json={"name": "also_a"}).json()
    assert (unloaded["id"], unloaded["state"], states()) == ("also_a", "declared", ("declared", "declared"))

    assert create(models, "hi", model="a")["output_text"] == "a"
    assert states() == ("resident", "resident")


def test_what_is_so_already_is_no_error(models: httpx.Client) -> None:
    for route, state in (("unload", "declared"), ("load", "resident"), ("load", "resident")):
        answer = models.post(f"/v1/models/{route}", json={"name": "a"})

        assert (answer.status_code, answer.json()["state"]) == (200, state)


def test_a_name_is_swapped_to_another_model(models: httpx.Client) -> None:
    """And back by its own name; the other name means what it meant."""

    def says() -> tuple[str, str]:
        return tuple(create(models, "hi", model=name)["output_text"] for name in ("left", "right"))

    assert says() == ("left", "right")

    swapped = models.post("/v1/models/swap", json={"name": "left", "to": "right"}).json()
    assert (swapped["id"], swapped["aliases"], swapped["state"]) == ("left", ["right"], "resident")
    assert says() == ("right", "right")

    undone = models.post("/v1/models/swap", json={"name": "left", "to": "left"}).json()
    assert (undone["id"], undone["aliases"]) == ("left", [])
    assert says() == ("left", "right")


@pytest.mark.parametrize("route", ROUTES)
def test_a_name_that_was_not_declared_is_not_found(models: httpx.Client, route: str) -> None:
    """R-058: and nothing has changed."""
    body = {"name": "untouched", "to": "gpt-5"} if route == "swap" else {"name": "gpt-5"}

    error = refused(models.post(f"/v1/models/{route}", json=body), 404)

    assert (error["type"], error["code"], error["param"]) == ("not_found_error", "model_not_found", "model")
    assert "untouched" in error["message"]
    assert told(models, "untouched")["state"] == "declared"


@pytest.mark.parametrize(
    ("route", "body", "param"),
    [
        ("load", {}, "name"),
        ("load", {"name": 1}, "name"),
        ("load", {"name": None}, "name"),
        ("load", {"name": "untouched", "force": True}, "force"),
        ("load", ["untouched"], "body"),
        ("load", {"name": ""}, "name"),
        ("unload", {"model": "untouched"}, "model"),
        ("unload", {"name": ["untouched"]}, "name"),
        ("swap", {"name": "untouched"}, "to"),
        ("swap", {"to": "untouched"}, "name"),
        ("swap", {"name": "untouched", "to": {}}, "to"),
    ],
)
def test_a_body_of_another_form_is_refused_by_its_field(
    models: httpx.Client, route: str, body: object, param: str
) -> None:
    """D-06: nothing is guessed, and a field that is not known is no comment."""
    error = refused(models.post(f"/v1/models/{route}", json=body), 400)

    assert (error["type"], error["code"], error["param"]) == (
        "invalid_request_error",
        "invalid_request",
        param,
    )


@pytest.mark.parametrize(
    ("route", "body", "param"),
    [
        ("load", {"name": "n" * 513}, "name"),
        ("unload", {"name": "n" * 9_000_000}, "name"),
        ("swap", {"name": "untouched", "to": "n" * 513}, "to"),
    ],
)
def test_a_name_is_no_longer_than_names_are(
    models: httpx.Client, route: str, body: object, param: str
) -> None:
    error = refused(models.post(f"/v1/models/{route}", json=body), 400)

    assert (error["code"], error["param"], len(error["message"]) < 200) == (
        "string_above_max_length",
        param,
        True,
    )


@pytest.mark.parametrize("body", [b"", b"{", b'{"name": "untouched"} x', b'{"name": "\xff"}'])
def test_a_body_that_is_no_json_is_refused(models: httpx.Client, body: bytes) -> None:
    headers = {"content-type": "application/json"}

    answer = models.post("/v1/models/load", content=body, headers=headers)

    assert refused(answer, 400)["code"] == "invalid_json"


def test_a_body_that_is_not_declared_as_json_is_refused(models: httpx.Client) -> None:
    """D-17: a web page could send it unasked."""
    answer = models.post("/v1/models/load", content=b'{"name": "untouched"}')

    assert refused(answer, 415)["code"] == "unsupported_media_type"
    assert told(models, "untouched")["state"] == "declared"


@pytest.mark.parametrize("route", ROUTES)
def test_another_method_is_not_allowed(models: httpx.Client, route: str) -> None:
    """R-001, D-06."""
    error = refused(models.put(f"/v1/models/{route}", json={"name": "untouched"}), 405)

    assert error["code"] == "method_not_allowed"


def test_what_goes_on_is_told_to_operators_only() -> None:
    """D-18: how many turns run tells of other owners."""
    entry = ModelStatus(
        name="qwen",
        state="resident",
        registered_s=7,
        instance_id=3,
        weight_bytes=WEIGHT_BYTES,
        aliases=("default",),
        capacity=4,
        active_turns=2,
        queued_turns=1,
    )
    public = {
        "id": "qwen",
        "object": "model",
        "created": 7,
        "owned_by": "turnlog",
        "state": "resident",
        "aliases": ("default",),
        "weight_bytes": WEIGHT_BYTES,
        "capacity": 4,
        "defaults": {},
    }

    assert model_object(entry, Caller("ada", frozenset({Role.CLIENT, Role.AUDITOR}))) == public
    assert model_object(entry, LOCAL) == public | NO_PROCESS | {
        "instance_id": 3,
        "active_turns": 2,
        "queued_turns": 1,
        "queue_limit": None,
        "loads": (),
    }


NAMES = (
    "org/name",
    "a%2Fb",
    "a/b",
    "100%",
    "qwen:7b",
    "my model",
    "a//b",
    "/led",
    "ended/",
    "load",
    "swap",
    "org/unload",
    "a?b#c",
    "qw\u00e9n",
)


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server whose models have names that need care in a URL."""
    folder = tmp_path_factory.mktemp("names")
    options = saying(folder, **dict.fromkeys(NAMES, "hi"))
    with serving(folder / "turnlog.db", *options) as running:
        yield running


@pytest.mark.parametrize("safe", ["", "/:"])
@pytest.mark.parametrize("name", NAMES)
def test_every_listed_model_can_be_asked_for(named: RunningServer, name: str, safe: str) -> None:
    """T2-02: with its slashes and colons raw or escaped."""
    with connected(named) as client:
        client.sendall(head("Connection: close", route=f"GET /v1/models/{quote(name, safe=safe)}"))
        first, _, body = rest(client).partition(b"\r\n\r\n")

    assert first.startswith(b"HTTP/1.1 200 ")
    assert json.loads(body)["id"] == name


@pytest.mark.parametrize("name", NAMES)
def test_every_listed_model_is_retrieved_by_the_sdk(named: RunningServer, name: str) -> None:
    """T2-02."""
    with OpenAI(base_url=f"{named.address}/v1", api_key="-") as client:
        assert name in [model.id for model in client.models.list()]
        assert client.models.retrieve(name).id == name
