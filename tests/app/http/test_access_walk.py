"""Every route of the app, walked by nobody, by strangers and by each role (D-18).

Nothing here names the routes: they are asked of the app, and a route without a decision fails.
"""

import warnings
from collections.abc import Iterator
from typing import Any, cast

import pytest

from tests.app.http.keyed import PEOPLE, WRONG_KEY, KeyedServer, keyed_serving
from tests.app.http.test_turns import create
from turnlog.adapters.openai.limits import RequestLimits
from turnlog.app.access import AUDIT, AUDITOR, CLIENT, EVERYONE, OPERATOR, POLICY
from turnlog.app.http.application import make_router
from turnlog.domain.owners import LOCAL

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
MISSING = f"resp_{'0' * 32}"


def routes() -> set[tuple[str, str]]:
    """The routes that the app has, as the table of roles writes them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nothing is served, so no lifespan is entered
        router = make_router(cast(Any, None), max_body_bytes=1, limits=RequestLimits())
    # Litestar answers OPTIONS for every route by itself.
    return {
        (method, route.path_format)
        for route in router.routes
        for method in cast(Any, route).methods
        if method != "OPTIONS"
    }


ROUTES = sorted(routes())


def filled(path: str, response_id: str) -> str:
    """The path with its parameters filled in."""
    return path.replace("{response_id}", response_id).replace("{name}", "scripted")


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeyedServer]:
    """A server with keys."""
    with keyed_serving(tmp_path_factory.mktemp("walk")) as running:
        yield running


@pytest.fixture(scope="module")
def of_alice(keyed: KeyedServer) -> str:
    """A response that is there to be read."""
    with keyed.client("alice") as http:
        return str(create(http, "hi")["id"])


# ── the table ─────────────────────────────────────────────────────────────────────────────────────


def test_every_route_has_a_decision_and_every_decision_a_route() -> None:
    assert set(ROUTES) == set(POLICY)


def test_what_matters_most_is_decided_so() -> None:
    """D-18: who reads content, who changes the server, and what wants no key."""
    open_routes = {route for route, roles in POLICY.items() if roles == EVERYONE}
    by_roles = {
        roles: {path for (_, path), decided in POLICY.items() if decided == roles}
        for roles in (CLIENT, OPERATOR, AUDITOR, AUDIT)
    }

    assert open_routes == {("GET", "/health"), ("GET", "/v1/health"), ("GET", "/health/ready")}
    assert by_roles[CLIENT] == {
        "/v1/responses",
        "/v1/responses/{response_id}",
        "/v1/responses/{response_id}/events",
        "/v1/responses/{response_id}/cancel",
        "/v1/responses/{response_id}/input_items",
        "/v1/responses/input_tokens",
        "/v1/chat/completions",
        "/v1/chat/completions/{response_id}",
    }
    assert by_roles[OPERATOR] == {
        "/metrics",
        "/v1/operations/backup",
        "/v1/operations/cancel",
        "/v1/operations/delete",
        "/v1/models/load",
        "/v1/models/unload",
        "/v1/models/swap",
        "/v1/responses/{response_id}/replay",
    }
    assert by_roles[AUDITOR] == {"/v1/audit/export"}
    assert all(path.startswith("/v1/audit/") for path in by_roles[AUDIT])
    assert all(roles <= AUDIT for (_, path), roles in POLICY.items() if path.startswith("/v1/audit/")), (
        "a client audits nobody"
    )


# ── without a key ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("key", [pytest.param(None, id="none"), "", WRONG_KEY, "tl_"])
@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_without_a_valid_key_only_the_health_routes_answer(
    keyed: KeyedServer, of_alice: str, method: str, path: str, key: str | None
) -> None:
    """D-18: what is there and what is not there is answered alike."""
    answer, missing = (keyed.send(method, filled(path, name), key) for name in (of_alice, MISSING))

    if POLICY[method, path] == EVERYONE:
        assert (answer.status, answer.body) == (200, b'{"status":"ok"}')
        return
    assert answer.status == missing.status == 401
    assert answer.body == missing.body
    assert answer.headers["www-authenticate"] == "Bearer"
    if method != "HEAD":
        assert answer.code == "invalid_api_key"


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "path",
    [
        "/nothing",
        "/v1",
        "/docs",
        "/schema/openapi.json",
        "/health/",
        "//health",
        "/HEALTH",
        "/health%00",
        "/health;/v1/models",
        "/health/..;/v1/models",
        "/health%2f..%2fv1/models",
        "/v1/%2e%2e/health",
        "/v1/models/../../health",
        "/v1/models?/health",
        "http://127.0.0.1/v1/models",
    ],
)
def test_unknown_routes_are_as_closed_as_known_ones(keyed: KeyedServer, method: str, path: str) -> None:
    """D-18: also what only looks like an open route to whoever reads a path in another way."""
    known = keyed.send(method, "/v1/models")

    for key in (None, WRONG_KEY):
        answer = keyed.send(method, path, key)
        assert answer.status == 401
        assert answer.headers["www-authenticate"] == "Bearer"
        assert answer.code == (None if method == "HEAD" else "invalid_api_key")
    assert keyed.send(method, path).body == known.body


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"])
def test_other_methods_of_the_health_routes_want_a_key(keyed: KeyedServer, method: str) -> None:
    for path in ("/health", "/v1/health", "/health/ready"):
        assert keyed.send(method, path).status == 401


# ── with a key ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", PEOPLE)
@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_a_key_opens_the_routes_of_its_role_and_no_other(
    keyed: KeyedServer, method: str, path: str, name: str
) -> None:
    """D-18: the other routes are refused before anything is looked up."""
    roles = POLICY[method, path]

    answer = keyed.send(method, filled(path, MISSING), keyed.keys[name])

    if roles == EVERYONE or PEOPLE[name] in roles:
        # What a route makes of `{}`, of a missing id or of no parameters is told elsewhere.
        assert answer.status in (200, 400, 404, 405, 426)
    else:
        assert (answer.status, answer.code) == (403, "role_not_allowed")


def test_with_a_key_unknown_routes_and_methods_are_told_apart(keyed: KeyedServer) -> None:
    alices = keyed.keys["alice"]

    unknown = keyed.send("GET", "/nothing", alices)
    other_method = keyed.send("DELETE", "/v1/responses", alices)
    options = keyed.send("OPTIONS", "/v1/responses", alices)

    assert (unknown.status, unknown.code) == (404, "route_not_found")
    assert (other_method.status, other_method.code) == (405, "method_not_allowed")
    assert (options.status, "POST" in options.headers["allow"]) == (204, True)


def test_a_key_comes_as_a_bearer_token_or_as_x_api_key(keyed: KeyedServer) -> None:
    alice, bob = keyed.keys["alice"], keyed.keys["bob"]

    def status(**headers: str) -> int:
        return keyed.send("GET", "/v1/models", **headers).status

    assert status(Authorization=f"Bearer {alice}") == 200
    assert status(authorization=f"bearer {alice}") == 200
    assert status(**{"X-Api-Key": alice}) == 200
    assert status(**{"x-api-key": alice, "Authorization": f"Bearer {alice}"}) == 200
    # Two that differ are none: what stands before turnlog may go by the other one.
    assert status(**{"x-api-key": alice, "Authorization": f"Bearer {bob}"}) == 401
    assert status(**{"x-api-key": alice, "Authorization": f"Bearer {WRONG_KEY}"}) == 401
    assert status(Authorization=alice) == 401
    assert status(Authorization=f"Basic {alice}") == 401
    assert status(Cookie=f"key={alice}") == 401
    assert keyed.send("GET", f"/v1/models?key={alice}&api_key={alice}").status == 401


def test_nobody_raises_a_role_over_the_network(keyed: KeyedServer) -> None:
    """D-18: roles come from the file of keys, whatever else a request says."""
    alices = keyed.keys["alice"]
    reservations = {
        "X-Role": "operator",
        "X-Turnlog-Role": "operator",
        "X-Owner": "local",
        "X-Forwarded-User": "olga",
        "X-Forwarded-For": "127.0.0.1",
        "X-Original-Url": "/health",
        "X-Rewrite-Url": "/health",
        "X-Http-Method-Override": "GET",
    }

    for path in ("/metrics", "/metrics?role=operator&owner=local", "/v1/audit/export?role=auditor"):
        answer = keyed.send("GET", path, alices, **reservations)
        assert (answer.status, answer.code) == (403, "role_not_allowed")
    assert keyed.send("GET", "/v1/models", **reservations).status == 401
    assert keyed.send("POST", "/v1/keys", alices).status == 404


def test_the_command_lines_token_opens_everything_from_this_machine(
    keyed: KeyedServer, of_alice: str
) -> None:
    """It acts as `local` with every role, so it reads nothing of alice but on the audit routes."""
    token = keyed.operator_token

    assert not any(token == key for key in keyed.keys.values())
    for method, path in ROUTES:
        answer = keyed.send(method, filled(path, MISSING), token)
        assert answer.status in (200, 400, 404, 405, 426), (method, path)
    assert keyed.send("GET", f"/v1/responses/{of_alice}", token).status == 404
    assert keyed.send("GET", f"/v1/audit/responses/{of_alice}", token).status == 200
    assert keyed.send("GET", "/v1/models", token[:-1]).status == 401
    assert PEOPLE.keys().isdisjoint({LOCAL.owner})


def test_why_a_server_is_not_ready_is_for_operators(keyed: KeyedServer) -> None:
    """Without a key readiness has no reasons, which name models and files (decision 12)."""
    told = {name: keyed.send("GET", "/health/ready", keyed.keys[name]).body for name in PEOPLE}

    assert told == {
        "alice": b'{"status":"ok"}',
        "bob": b'{"status":"ok"}',
        "ada": b'{"status":"ok"}',
        "olga": b'{"status":"ok","problems":[]}',
    }
    assert keyed.send("GET", "/health/ready").body == b'{"status":"ok"}'
