"""What web pages and rebound names get of a server: nothing, unless it is configured (D-17, D-18)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.app.http.keyed import KeyedServer, keyed_serving, send
from tests.app.http.test_access_walk import MISSING, filled
from tests.app.printing import printing
from tests.app.scripts import SCRIPT
from tests.serving import RunningServer
from turnlog.app.access import POLICY
from turnlog.app.http.origins import (
    AllowList,
    HostNotAllowedError,
    InvalidHostError,
    OriginNotAllowedError,
    is_loopback,
)
from turnlog.app.settings import SettingsError

CHAT = "https://chat.example.com"
EVIL = "https://evil.example"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeyedServer]:
    """A server with keys whose answers the pages of one origin may read."""
    with keyed_serving(
        tmp_path_factory.mktemp("pages"),
        TURNLOG_ALLOWED_ORIGINS=CHAT,
        TURNLOG_ALLOWED_HOSTS="turnlog.example.com,[fd00::5]",
    ) as running:
        yield running


def cors(headers: dict[str, str]) -> dict[str, str]:
    """What is said to browsers about sharing."""
    return {name: value for name, value in headers.items() if name.startswith("access-control-")}


# ── names: a page whose own name was pointed at this machine ──────────────────────────────────────


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil", "localhost.evil.example", "169.254.169.254"]
)
@pytest.mark.parametrize(("method", "path"), sorted(POLICY))
def test_a_name_that_was_pointed_at_this_machine_gets_nothing(
    server: RunningServer, method: str, path: str, host: str
) -> None:
    """D-18: DNS rebinding; a server without keys lets in whoever is on the machine, so its pages too."""
    answer = send(server.address, method, filled(path, MISSING), Host=host)

    assert answer.status == 403
    assert answer.code == (None if method == "HEAD" else "host_not_allowed")


@pytest.mark.parametrize(
    "host", ["localhost", "LocalHost:1", "localhost.", "127.0.0.1:9", "[::1]", "[::1]:80"]
)
def test_every_name_of_this_machine_is_answered(server: RunningServer, host: str) -> None:
    assert send(server.address, "GET", "/v1/models", Host=host).status == 200


@pytest.mark.parametrize(
    "host", ["", "[::1", "localhost/x", "evil.example@localhost", "localhost, evil.example"]
)
def test_a_host_that_is_no_name_is_refused(server: RunningServer, host: str) -> None:
    assert send(server.address, "GET", "/v1/models", Host=host).code == "invalid_host"


@pytest.mark.parametrize("host", ["turnlog.example.com", "TURNLOG.example.com:443", "[fd00::5]:8000"])
def test_a_configured_name_is_answered(shared: KeyedServer, host: str) -> None:
    alices = shared.keys["alice"]

    assert shared.send("GET", "/v1/models", alices, Host=host).status == 200
    # A name opens nothing by itself, and none beside it.
    assert shared.send("GET", "/v1/models", Host=host).status == 401
    assert shared.send("GET", "/v1/models", alices, Host="example.com").code == "host_not_allowed"


@pytest.mark.parametrize("host", ["*", "", "a b", "a/b", "a.example:80", "https://a.example"])
def test_a_wrong_host_is_refused_at_the_start(host: str) -> None:
    with pytest.raises(SettingsError, match="TURNLOG_ALLOWED_HOSTS"):
        AllowList([host], [])


def test_the_address_that_a_connection_reached_is_no_name_that_could_be_rebound() -> None:
    """Decision 12: a server on 0.0.0.0 has many addresses."""
    allowed = AllowList([], [])

    allowed.check_host(["192.0.2.7:8000"], "192.0.2.7")
    allowed.check_host(["192.0.2.7"], "::ffff:192.0.2.7")
    allowed.check_host(["[fd00::5]:8000"], "fd00::5")
    for hosts, server in (
        (["192.0.2.8"], "192.0.2.7"),
        (["evil.example"], "192.0.2.7"),
        (["192.0.2.7"], None),
        ([], "192.0.2.7"),
        (["192.0.2.7", "192.0.2.7"], "192.0.2.7"),
    ):
        with pytest.raises((HostNotAllowedError, InvalidHostError)):
            allowed.check_host(hosts, server)


@pytest.mark.parametrize(
    ("address", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("::ffff:10.0.0.1", False),
        ("::1:2", False),
        ("localhost", False),
    ],
)
def test_which_addresses_are_of_this_machine_only(address: str, *, loopback: bool) -> None:
    assert is_loopback(address) is loopback


# ── origins: a page that asks this machine by its name ────────────────────────────────────────────


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "https://localhost.evil.example", "null", "file://", ""]
)
@pytest.mark.parametrize(("method", "path"), sorted(POLICY))
def test_a_page_of_another_origin_gets_nothing(
    server: RunningServer, method: str, path: str, origin: str
) -> None:
    """D-17: the request is refused, not only its answer kept from the page."""
    answer = send(server.address, method, filled(path, MISSING), Origin=origin)

    assert answer.status == 403
    assert answer.code == (None if method == "HEAD" else "origin_not_allowed")
    assert cors(answer.headers) == {}


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_what_a_page_fetches_without_an_origin_is_known_by_its_site(server: RunningServer, site: str) -> None:
    """An image or a link of a page is asked for without an `Origin`."""
    for path in ("/v1/models", "/health"):
        answer = send(server.address, "GET", path, **{"Sec-Fetch-Site": site})
        assert (answer.status, answer.code) == (403, "origin_not_allowed")
    for here in ("none", "same-origin"):
        assert send(server.address, "GET", "/v1/models", **{"Sec-Fetch-Site": here}).status == 200


@pytest.mark.parametrize("origin", ["http://127.0.0.1", "http://localhost:3000", "https://[::1]:5173"])
def test_a_page_of_this_machine_may_ask_and_reads_nothing(server: RunningServer, origin: str) -> None:
    """D-17: no CORS header, so the browser keeps the answer from it."""
    answer = send(server.address, "GET", "/v1/models", Origin=origin)

    assert answer.status == 200
    assert cors(answer.headers) == {}
    assert "vary" not in answer.headers


def test_two_origins_are_none() -> None:
    allowed = AllowList([], [CHAT])

    allowed.check_origin([CHAT], "cross-site")
    for origins in ([CHAT, CHAT], [CHAT, EVIL], [f"{CHAT}, {EVIL}"], [f"{CHAT} {CHAT}"]):
        with pytest.raises(OriginNotAllowedError):
            allowed.check_origin(origins, None)


# ── origins that are configured ───────────────────────────────────────────────────────────────────


def test_pages_of_a_configured_origin_read_the_answers(shared: KeyedServer) -> None:
    """Also refusals, so that the page can tell what is wrong; it needs a key as everybody."""
    taken = shared.send("GET", "/v1/models", shared.keys["alice"], Origin=CHAT)
    refused = shared.send("GET", "/v1/models", Origin=CHAT)

    assert (taken.status, refused.status) == (200, 401)
    for answer in (taken, refused):
        assert cors(answer.headers) == {
            "access-control-allow-origin": CHAT,
            "access-control-expose-headers": "retry-after, x-response-id, x-request-id, idempotent-replayed",
        }
        assert "origin" in answer.headers["vary"].lower()


def test_a_preflight_of_a_configured_origin_is_answered_without_a_key(shared: KeyedServer) -> None:
    """Browsers send none with it."""
    asked = {
        "Origin": CHAT,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type",
    }

    answer = shared.send("OPTIONS", "/v1/responses", **asked)

    assert (answer.status, answer.body) == (204, b"")
    assert cors(answer.headers) == {
        "access-control-allow-origin": CHAT,
        "access-control-allow-methods": "GET, POST, DELETE",
        "access-control-allow-headers": "authorization,content-type",
        "access-control-expose-headers": "retry-after, x-response-id, x-request-id, idempotent-replayed",
        "access-control-max-age": "600",
    }
    # What asks for no method is no preflight.
    assert shared.send("OPTIONS", "/v1/responses", Origin=CHAT).status == 401


def test_a_preflight_of_another_origin_is_refused(server: RunningServer) -> None:
    asked = {"Origin": EVIL, "Access-Control-Request-Method": "POST"}

    answer = send(server.address, "OPTIONS", "/v1/responses", **asked)

    assert (answer.status, answer.code) == (403, "origin_not_allowed")
    assert cors(answer.headers) == {}


@pytest.mark.parametrize("origin", [EVIL, f"{CHAT}:444", f"{CHAT}.", "http://chat.example.com"])
def test_another_origin_is_another_origin(shared: KeyedServer, origin: str) -> None:
    """Scheme, name and port make an origin; a key does not make up for it."""
    preflight = {"Origin": origin, "Access-Control-Request-Method": "POST"}

    for answer in (
        shared.send("GET", "/v1/models", shared.keys["alice"], Origin=origin),
        shared.send("OPTIONS", "/v1/responses", **preflight),
    ):
        assert (answer.status, answer.code) == (403, "origin_not_allowed")
        assert cors(answer.headers) == {}
        assert answer.headers["vary"] == "origin"


def test_a_page_of_this_machine_reads_nothing_either_when_others_do(shared: KeyedServer) -> None:
    answer = shared.send("GET", "/v1/models", shared.keys["alice"], Origin="http://localhost:3000")

    assert answer.status == 200
    assert cors(answer.headers) == {}


@pytest.mark.parametrize("origin", ["*", "NULL", "chat.example.com", f"{CHAT}/", "https://a b"])
def test_a_wrong_origin_is_refused_at_the_start(origin: str) -> None:
    with pytest.raises(SettingsError, match="TURNLOG_ALLOWED_ORIGINS"):
        AllowList([], [origin])


def test_pages_without_an_origin_are_let_in_knowingly(tmp_path: Path) -> None:
    """T2-27: such as Jan's web view; the start warns of it."""
    with printing(tmp_path, SCRIPT, TURNLOG_ALLOWED_ORIGINS=f"null,{CHAT}") as printed:
        sandboxed = send(
            printed.server.address, "GET", "/health", **{"Origin": "null", "Sec-Fetch-Site": "cross-site"}
        )
        evil = send(printed.server.address, "GET", "/health", Origin=EVIL)
        said = printed.text()

    assert (sandboxed.status, cors(sandboxed.headers)["access-control-allow-origin"]) == (200, "null")
    assert evil.status == 403
    assert "TURNLOG_ALLOWED_ORIGINS has 'null'" in said


def test_a_refused_host_or_origin_names_the_setting_that_would_allow_it(server: RunningServer) -> None:
    """T2-27."""
    host = send(server.address, "GET", "/health", Host="evil.example")
    origins = [send(server.address, "GET", "/health", Origin=origin) for origin in (EVIL, "null")]

    assert "TURNLOG_ALLOWED_HOSTS" in host.body.decode()
    assert all("TURNLOG_ALLOWED_ORIGINS" in each.body.decode() for each in origins)
