"""Which names a server answers to, and which web pages may talk to it.

A page in somebody's browser reaches a server on the same machine; by a name that its author points at
127.0.0.1 it even looks as if it came from there (DNS rebinding). `Host` and `Origin` tell both: browsers
write them, pages cannot.
"""

import re
from collections.abc import Iterable
from ipaddress import IPv6Address, ip_address

from turnlog.app.settings import SettingsError
from turnlog.domain.errors import ForbiddenError, InvalidRequestError

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})

_HOST = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9._-]+))(?::[0-9]{1,5})?", re.ASCII)
ANY_SANDBOX = "null"
"""What browsers write for pages without an origin: of files, of sandboxed frames, of some web views."""

_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^\s/?#]+", re.ASCII)


class HostNotAllowedError(ForbiddenError):
    """The request is for a name that this server does not answer to."""

    code = "host_not_allowed"

    def __init__(self) -> None:
        super().__init__("The request's Host is not allowed. Add it to TURNLOG_ALLOWED_HOSTS to allow it.")


class InvalidHostError(InvalidRequestError):
    """The request does not say for which name it is (RFC 9112, 3.2)."""

    code = "invalid_host"

    def __init__(self) -> None:
        super().__init__("The request must have exactly one valid Host header.")


class OriginNotAllowedError(ForbiddenError):
    """The request comes from a web page that may not talk to this server."""

    code = "origin_not_allowed"

    def __init__(self) -> None:
        super().__init__(
            "The request's Origin is not allowed. Add it to TURNLOG_ALLOWED_ORIGINS to allow it."
        )


class AllowList:
    """The names and origins that are let in.

    Args:
        hosts: names beside those of loopback; they hold for every port.
        origins: whose pages may send requests and read the answers, as browsers write them:
            `https://chat.example.com`, or `null`. Pages of this machine may send requests, but read nothing.

    Raises:
        SettingsError: one has another form.
    """

    def __init__(self, hosts: Iterable[str], origins: Iterable[str]) -> None:
        self._hosts = LOOPBACK_NAMES | {_bare(host) for host in hosts}
        self.origins = frozenset(origins)
        for origin in self.origins:
            if origin != ANY_SANDBOX and not _ORIGIN.fullmatch(origin):
                raise SettingsError(
                    f"TURNLOG_ALLOWED_ORIGINS has '{origin}': expected an origin such as https://chat.example.com"
                )

    def check_host(self, hosts: list[str], server: str | None, http_version: str = "1.1") -> None:
        """Refuse a request for another name.

        Args:
            hosts: its `Host` headers. HTTP/1.0 needs none, and no browser speaks it.
            server: the address that the connection reached; it is no name that a page could rebind.

        Raises:
            InvalidHostError: it does not say for which name it is.
            HostNotAllowedError: it is for another name.
        """
        if not hosts and http_version == "1.0":
            return
        name = host_name(hosts[0]) if len(hosts) == 1 else None
        if name is None:
            raise InvalidHostError
        reached = (server or "").removeprefix("::ffff:")
        if name not in self._hosts and name != reached:
            raise HostNotAllowedError

    def check_origin(self, origins: list[str], fetch_site: str | None, *, is_read: bool = False) -> None:
        """Refuse a request that a page of another origin sends.

        Args:
            origins: its `Origin` headers.
            fetch_site: its `Sec-Fetch-Site`, which browsers also send with requests that have no origin.
            is_read: whether the page reads the answer whatever its headers say, as that of a WebSocket.

        Raises:
            OriginNotAllowedError: the page is of another origin.
        """
        if not origins and fetch_site in (None, "none", "same-origin"):
            return
        is_allowed = len(origins) == 1 and (
            origins[0] in self.origins or (not is_read and _is_here(origins[0]))
        )
        if not is_allowed:
            raise OriginNotAllowedError


def host_name(host: str) -> str | None:
    """The name in a `Host` header, without its port; None if it is none."""
    match = _HOST.fullmatch(host)
    return match and (match["v6"] or match["name"].rstrip(".")).lower()


def is_loopback(address: str) -> bool:
    """Whether an IP address is one of this machine that no other can reach."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    mapped = parsed.ipv4_mapped if isinstance(parsed, IPv6Address) else None
    return (mapped or parsed).is_loopback


def _is_here(origin: str) -> bool:
    scheme, _, rest = origin.partition("://")
    return scheme in ("http", "https") and host_name(rest) in LOOPBACK_NAMES


def _bare(host: str) -> str:
    name = host.strip("[]").rstrip(".").lower()
    if host_name(name) != name and host_name(f"[{name}]") != name:
        raise SettingsError(f"TURNLOG_ALLOWED_HOSTS has '{host}': expected a name without a port")
    return name
