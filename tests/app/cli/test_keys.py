"""`turnlog keys` as a new user meets it, and what a server makes of the keys (D-18)."""

import json
import re
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from tests.app.commands import command
from tests.app.exposed import samples
from tests.app.http.keyed import WRONG_KEY, KeyedServer, keyed_serving, send
from tests.app.http.test_turns import create, refused
from tests.app.scripts import HELLO, entry, write_script
from tests.security.sockets import error_of, head, post
from tests.serving import connected, serving, started, turnlog
from tests.waiting import received, until
from turnlog.domain.owners import Role

KEY = r"tl_[A-Za-z0-9_-]{43}"

Scripted = tuple[str, ...]
"""The options of a server that plays a script."""


@pytest.fixture
def script(tmp_path: Path) -> Scripted:
    """The usual one."""
    return "--engine", "scripted", "--script", str(write_script(tmp_path))


def keys(database: Path, *arguments: str) -> tuple[int, str, str]:
    """Run `turnlog keys`: exit code, standard output, standard error."""
    done = command(database, "keys", *arguments)
    return done.exit_code, done.stdout, done.stderr


# ── the commands ──────────────────────────────────────────────────────────────────────────────────


def test_keys_are_listed_without_what_opens_the_door(tmp_path: Path) -> None:
    """A key is shown once, alone on standard output, so that `KEY=$(turnlog keys add alice)` works."""
    database = tmp_path / "new" / "turnlog.db"

    none = keys(database, "list")
    code, alices, said = keys(database, "add", "alice")
    _, adas, _ = keys(database, "add", "ada", "--role", "auditor")
    _, listed, _ = keys(database, "list")
    as_json = [json.loads(line) for line in keys(database, "list", "--json")[1].splitlines()]

    assert (none[:2], "No keys: the server" in none[2]) == ((0, ""), True)
    assert code == 0
    assert re.fullmatch(f"{KEY}\n", alices)
    assert "for alice (client). The key is shown only once:" in said
    assert "Every request now needs a key, including requests from this machine." in said
    assert alices.strip() not in said
    assert [(key["owner"], key["role"]) for key in as_json] == [("alice", "client"), ("ada", "auditor")]
    assert all(key.keys() == {"id", "owner", "role", "made_s"} for key in as_json)
    assert all(shown in listed for key in as_json for shown in (key["id"], key["owner"], key["role"]))
    kept = json.loads((database.parent / "turnlog.db.keys").read_text())["keys"]
    told = listed + json.dumps(as_json)
    assert not any(secret in told for secret in (alices.strip(), adas.strip(), kept[0]["sha256"][:12]))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["add", ""], "Invalid owner"),
        (["add", "a b"], "Invalid owner"),
        (["add"], "Missing argument 'OWNER'"),
        (["add", "x", "--role", "admin"], "'admin' is not one of 'client', 'auditor', 'operator'"),
        (["revoke", "key_00000000"], "Key 'key_00000000' not found"),
        (["revoke", "alice"], "'alice' is an owner, not a key id. Keys of this owner: key_"),
    ],
)
def test_what_cannot_be_done_with_keys_is_said(tmp_path: Path, arguments: list[str], said: str) -> None:
    database = tmp_path / "turnlog.db"
    keys(database, "add", "alice")
    before = keys(database, "list", "--json")

    code, shown, complaint = keys(database, *arguments)

    assert (code, shown) == (2, "")
    assert said in complaint
    assert keys(database, "list", "--json") == before


def test_a_log_in_memory_has_no_keys() -> None:
    for arguments in (["add", "alice"], ["list"], ["revoke", "key_0"]):
        code, shown, complaint = keys(Path(":memory:"), *arguments)
        assert (code, shown) == (2, "")
        assert "An in-memory log has no keys" in complaint


# ── where a server listens ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
@pytest.mark.parametrize("kept", ["no file", "none left", "in memory"])
def test_without_a_key_a_server_listens_on_this_machine_only(
    tmp_path: Path, script: Scripted, kept: str, host: str
) -> None:
    """D-18: refused at the start, with the way out; nothing is served meanwhile."""
    database = Path(":memory:") if kept == "in memory" else tmp_path / "turnlog.db"
    if kept == "none left":
        keys(database, "add", "alice")
        keys(database, "revoke", json.loads(keys(database, "list", "--json")[1])["id"])

    done = turnlog("serve", "--port", "0", "--host", host, "--db", str(database), *script)

    assert (done.returncode, done.stdout) == (2, "")
    assert "without API keys" in done.stderr
    assert "'turnlog keys add NAME', or listen on 127.0.0.1" in done.stderr


def test_with_a_key_a_server_listens_where_it_is_told_and_wants_it(tmp_path: Path, script: Scripted) -> None:
    database = tmp_path / "turnlog.db"
    alices = keys(database, "add", "alice")[1].strip()

    with serving(database, "--host", "0.0.0.0", *script) as server:
        address = server.address.replace("0.0.0.0", "127.0.0.1")
        assert send(address, "GET", "/v1/models").status == 401
        assert send(address, "GET", "/v1/models", WRONG_KEY).status == 401
        assert send(address, "GET", "/v1/models", alices).status == 200
        # A wildcard is no name to be reached by.
        assert send(address, "GET", "/v1/models", alices, Host="evil.example").code == "host_not_allowed"


@pytest.mark.parametrize("content", ["", "{}", '{"keys":[{"id":"k","owner":"a","role":"client"}]}'])
def test_a_damaged_key_file_is_refused_at_the_start(tmp_path: Path, script: Scripted, content: str) -> None:
    database = tmp_path / "turnlog.db"
    file = tmp_path / "turnlog.db.keys"
    file.write_text(content)
    file.chmod(0o600)

    done = turnlog("serve", "--port", "0", "--db", str(database), *script)

    assert (done.returncode, done.stdout) == (2, "")
    assert "are damaged" in done.stderr
    assert "turnlog.db.keys" in done.stderr
    assert "Traceback" not in done.stderr


# ── a running server ──────────────────────────────────────────────────────────────────────────────


def test_the_first_key_closes_a_running_server_and_the_last_one_leaves_it_closed(
    tmp_path: Path, script: Scripted
) -> None:
    """D-18, decision 12: also over a restart; what was made without keys is `local`'s."""
    database = tmp_path / "turnlog.db"
    with serving(database, *script) as server, server.http as nobody:
        path = f"/v1/responses/{create(nobody, 'hi')['id']}"

        alices = keys(database, "add", "alice")[1].strip()
        assert refused(nobody.get(path), 401)["code"] == "invalid_api_key"
        assert nobody.get("/health").status_code == 200
        with server.client(key=alices) as alice:
            assert create(alice, "hi")["status"] == "completed"
            assert refused(alice.get(path), 404)["code"] == "response_not_found"
        locals_key = keys(database, "add", "local")[1].strip()
        with server.client(key=locals_key) as local:
            assert local.get(path).status_code == 200

        for line in keys(database, "list", "--json")[1].splitlines():
            _, _, said = keys(database, "revoke", json.loads(line)["id"])
        assert "No keys left: the server rejects every request" in said
        assert f"remove {database}.keys" in said
        for key in (None, alices, locals_key):
            assert send(server.address, "GET", "/v1/models", key).status == 401
        assert server.stop() == 0

    with serving(database, *script) as server:
        assert send(server.address, "GET", "/v1/models").status == 401
        # The command line has a token of its own.
        assert turnlog("models", "--db", str(database)).returncode == 0


def _state(keyed: KeyedServer, response_id: str) -> dict[str, Any]:
    """How a turn stands, as the auditor sees it."""
    with keyed.client("ada") as ada:
        body: dict[str, Any] = ada.get(f"/v1/audit/responses/{response_id}").json()
    return body


@contextmanager
def _reading(keyed: KeyedServer, name: str, text: str) -> Iterator[tuple[str, Generator[str]]]:
    """A stream that has begun to answer: the id of its response, and the rest of it."""
    body = {"model": "scripted", "input": text, "stream": True}
    with keyed.client(name) as http, http.stream("POST", "/v1/responses", json=body) as answer:
        chunks = cast("Generator[str]", answer.iter_text())
        told = received(lambda: next(chunks, ""), "output_text.delta")
        yield re.findall(r"resp_[0-9a-f]{32}", told)[0], chunks


@pytest.mark.parametrize("text", ["hang", "trickle"])
def test_what_a_revoked_key_is_reading_is_cut_off(tmp_path: Path, text: str) -> None:
    """D-18: at the next frame or heartbeat, without a proper end, and the turn ends as `client_abort`."""
    trickle = [step for number in range(20_000) for step in ({"text": f"{number} "}, {"sleep_ms": 20})]
    script = {"turns": [entry("hang", {"text": "Hel"}, {"hang": True}), entry("trickle", *trickle), HELLO]}
    # Signs of life for the one, none between the frames of the other.
    heartbeat = "0.05" if text == "hang" else "600"
    with (
        keyed_serving(tmp_path, script, TURNLOG_HEARTBEAT_S=heartbeat) as keyed,
        _reading(keyed, "alice", text) as (response_id, alices),
        _reading(keyed, "bob", text) as (_, bobs),
    ):
        next(alices)
        keyed.file.revoke(keyed.key_ids["alice"])

        with pytest.raises(httpx.RemoteProtocolError):
            for _ in alices:
                pass
        ended = until(lambda: (found := _state(keyed, response_id))["status"] == "failed" and found)
        assert "client_abort" in json.dumps(ended)
        # Nobody else's is.
        for _ in range(3):
            next(bobs)
        assert keyed.send("GET", "/v1/models", keyed.keys["alice"]).status == 401


def test_a_turn_that_a_revoked_key_waits_for_ends_at_once(tmp_path: Path) -> None:
    """D-18: not a byte of its answer is sent, and what it has to wait for is not waited for."""
    script = {"concurrency": 1, "turns": [entry("hang", {"text": "Hel"}, {"hang": True}), HELLO]}
    with (
        keyed_serving(tmp_path, script) as keyed,
        ThreadPoolExecutor(1) as pool,
        _reading(keyed, "bob", "hang"),
        keyed.client("ada") as ada,
    ):
        waiting = pool.submit(_asked, keyed, "alice")
        (queued,) = until(lambda: ada.get("/v1/audit/responses?owner=alice").json()["data"])
        keyed.file.revoke(keyed.key_ids["alice"])
        refused = waiting.result()
        ended = until(lambda: (found := _state(keyed, queued["id"]))["status"] == "failed" and found)

    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_api_key")
    assert ended["reason"] == "client_abort"


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/models/unload"])
def test_a_body_that_comes_after_its_key_was_revoked_makes_nothing_happen(tmp_path: Path, path: str) -> None:
    """D-18."""
    name, body = {
        "/v1/responses": ("alice", b'{"model": "scripted", "input": "hi"}'),
        "/v1/models/unload": ("olga", b'{"name": "scripted"}'),
    }[path]
    with keyed_serving(tmp_path) as keyed, keyed.client("ada") as ada, connected(keyed.server) as client:
        asked_before = _asked(keyed, "bob").json()["id"]
        lines = ("Content-Type: application/json", f"Content-Length: {len(body)}")
        client.sendall(
            head(*lines, f"Authorization: Bearer {keyed.keys[name]}", route=f"POST {path}") + body[:9]
        )
        with keyed.client("olga") as olga:
            until(lambda: _are_served(2, olga))
        keyed.file.revoke(keyed.key_ids[name])
        client.sendall(body[9:])
        told = received(lambda: client.recv(1 << 16), b"}}")

        listed = ada.get("/v1/audit/responses").json()["data"]
        models = ada.get("/v1/models").json()["data"]

    assert error_of(told) == (401, "invalid_api_key")
    assert [each["id"] for each in listed] == [asked_before]
    assert [each["state"] for each in models] == ["resident"]


def test_a_body_that_comes_after_the_first_key_was_made_makes_nothing_happen(tmp_path: Path) -> None:
    """D-18: whoever began to ask when nobody needed a key needs one now."""
    body = b'{"model": "scripted", "input": "hi"}'
    options = ("--engine", "scripted", "--script", str(write_script(tmp_path)))
    with serving(tmp_path / "turnlog.db", *options) as server, connected(server) as client:
        client.sendall(post(body)[:-9])
        with server.http as http:
            until(lambda: _are_served(2, http))
        _, key = keys(tmp_path / "turnlog.db", "add", "ada", "--role", "auditor")[:2]
        client.sendall(body[-9:])
        told = received(lambda: client.recv(1 << 16), b"}}")
        with server.client(key=key.strip()) as ada:
            listed = ada.get("/v1/audit/responses").json()["data"]

    assert (error_of(told), listed) == ((401, "invalid_api_key"), [])


def _are_served(connections: int, http: httpx.Client) -> bool:
    """Whether there are so many connections and each has a request that was let in; that of `http` is one."""
    in_use = samples(http.get("/metrics").text, "budget_in_use")
    counts = [in_use[f"budget_in_use{{budget={which}connections}}"] for which in ("", "unauthenticated_")]
    return counts == [connections, 0]


def _asked(keyed: KeyedServer, name: str) -> httpx.Response:
    """The answer to a turn without a stream."""
    with keyed.client(name) as http:
        return http.post("/v1/responses", json={"model": "scripted", "input": "hi"})


# ── where keys are not ────────────────────────────────────────────────────────────────────────────


def test_no_key_leaks_into_logs_errors_metrics_or_files(tmp_path: Path) -> None:
    """D-18: not a right one, not a wrong one, not the token of the command line."""
    database = tmp_path / "turnlog.db"
    alices, olgas, adas = (
        keys(database, "add", name, "--role", role.value)[1].strip()
        for name, role in (("alice", Role.CLIENT), ("olga", Role.OPERATOR), ("ada", Role.AUDITOR))
    )
    options = ("--engine", "scripted", "--script", str(write_script(tmp_path)))
    environ = {"TURNLOG_LOG_LEVEL": "debug", "TURNLOG_ACCESS_LOG": "true"}
    answers = []
    with (tmp_path / "stderr").open("w+") as said, started(database, options, environ, stderr=said) as server:
        token = json.loads((tmp_path / "turnlog.db.lock").read_text())["token"]
        for key in (alices, olgas, adas, WRONG_KEY, token):
            with server.client(key=key) as http:
                for text in ("hi", "boom", "call one"):
                    body = {"model": "scripted", "input": text}
                    answers.append(http.post("/v1/responses", json=body))
                answers += [
                    http.post("/v1/responses", content=b"{"),
                    http.get("/v1/responses/resp_0", headers={"x-api-key": key}),
                    http.get("/v1/responses/resp_0", headers={"x-api-key": f"{key}x"}),
                    http.get("/nothing"),
                    http.get("/metrics"),
                    http.get("/v1/audit/responses"),
                    http.get("/v1/audit/export"),
                ]
        assert server.stop() == 0

    told = "".join(f"{answer.headers}{answer.text}" for answer in answers).encode()
    files = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    assert {200, 401, 403, 404, 500} <= {answer.status_code for answer in answers}
    assert files["stderr"].count(b"[http]") >= 10
    assert {"turnlog.db", "turnlog.db.keys", "stderr"} <= files.keys()
    for secret in (alices, olgas, adas, WRONG_KEY, token):
        # A part of it would be too much already.
        canary = secret.removeprefix("tl_")[:12].encode()
        assert canary not in told
        assert [name for name, content in files.items() if canary in content] == []
