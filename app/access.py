"""Who may do what: one table of routes and roles, and who a caller is.

A route that is not in the table is refused, so a new route begins with a line here (D-18).
"""

import hashlib
import hmac
from collections.abc import Mapping
from typing import Protocol

from msgspec.structs import replace

from turnlog.domain.errors import ResponsesError, RoleForbiddenError
from turnlog.domain.owners import LOCAL, Caller, Role

Route = tuple[str, str]
"""A method and a path with its parameters in braces."""

EVERYONE: frozenset[Role] = frozenset()
"""Also who has no key."""

ANY_ROLE = frozenset(Role)
CLIENT = frozenset({Role.CLIENT})
OPERATOR = frozenset({Role.OPERATOR})
AUDITOR = frozenset({Role.AUDITOR})
AUDIT = frozenset({Role.AUDITOR, Role.OPERATOR})
"""Metadata for both; `Caller.reads_content` says who reads content."""

POLICY: Mapping[Route, frozenset[Role]] = {
    ("GET", "/health"): EVERYONE,
    ("GET", "/v1/health"): EVERYONE,
    # The status alone; what is wrong is told to operators.
    ("GET", "/health/ready"): EVERYONE,
    ("GET", "/"): ANY_ROLE,
    ("GET", "/openapi.json"): ANY_ROLE,
    ("GET", "/v1/models"): ANY_ROLE,
    ("GET", "/v1/models/{name}"): ANY_ROLE,
    # Models of that name.
    ("GET", "/v1/models/load"): ANY_ROLE,
    ("GET", "/v1/models/unload"): ANY_ROLE,
    ("GET", "/v1/models/swap"): ANY_ROLE,
    ("POST", "/v1/models/load"): OPERATOR,
    ("POST", "/v1/models/unload"): OPERATOR,
    ("POST", "/v1/models/swap"): OPERATOR,
    ("POST", "/v1/operations/backup"): OPERATOR,
    ("POST", "/v1/operations/cancel"): OPERATOR,
    ("POST", "/v1/operations/delete"): OPERATOR,
    ("GET", "/metrics"): OPERATOR,
    # Its own responses only; those of others are read on the audit routes.
    ("POST", "/v1/responses"): CLIENT,
    ("GET", "/v1/responses"): CLIENT,
    ("GET", "/v1/responses/{response_id}"): CLIENT,
    ("GET", "/v1/responses/{response_id}/events"): CLIENT,
    ("GET", "/v1/responses/{response_id}/input_items"): CLIENT,
    ("POST", "/v1/responses/input_tokens"): CLIENT,
    ("GET", "/v1/responses/input_tokens"): CLIENT,
    ("DELETE", "/v1/responses/{response_id}"): CLIENT,
    ("POST", "/v1/chat/completions"): CLIENT,
    ("GET", "/v1/chat/completions"): CLIENT,
    ("GET", "/v1/chat/completions/{response_id}"): CLIENT,
    ("POST", "/v1/chat/completions/{response_id}"): CLIENT,
    ("DELETE", "/v1/chat/completions/{response_id}"): CLIENT,
    ("POST", "/v1/responses/{response_id}/cancel"): CLIENT,
    ("POST", "/v1/responses/{response_id}/replay"): OPERATOR,
    ("GET", "/v1/audit/responses"): AUDIT,
    ("GET", "/v1/audit/responses/{response_id}"): AUDIT,
    ("GET", "/v1/audit/responses/{response_id}/events"): AUDIT,
    ("GET", "/v1/audit/chains/{response_id}"): AUDIT,
    ("GET", "/v1/audit/export"): AUDITOR,
    ("GET", "/v1/audit/compare"): AUDIT,
    ("GET", "/v1/audit/usage"): AUDIT,
}


_COMMAND_LINE = replace(LOCAL, key_id="(command line)")
"""Who shows the operator token: as everybody is while no keys are in use, but to the end of the server."""


def is_on_this_machine(caller: Caller) -> bool:
    """Whether the caller has no key because it is on the server's machine."""
    return caller in (LOCAL, _COMMAND_LINE)


class UnauthenticatedError(ResponsesError):
    """The request has no key that turnlog knows (D-18)."""

    code = "invalid_api_key"

    def __init__(self, *, given: bool) -> None:
        what = "Invalid API key" if given else "An API key is required"
        super().__init__(f"{what}: send one as 'Authorization: Bearer KEY' or 'x-api-key: KEY'.")


class Keys(Protocol):
    """The keys a server accepts at this moment."""

    @property
    def in_use(self) -> bool:
        """Whether a caller must have a key; once true, it stays so."""

    @property
    def is_shared(self) -> bool:
        """Whether there are keys of several owners."""

    def find(self, text: str) -> Caller | None:
        """Who has the key `text`; None if nobody."""

    def holds(self, key_id: str) -> bool:
        """Whether the key of that id is still accepted."""


class Access:
    """Tells who a caller is.

    Args:
        operator_token: what the command line on this machine shows instead of a key; new at every start.
    """

    def __init__(self, keys: Keys, operator_token: str | None = None) -> None:
        self._keys = keys
        self._token = operator_token

    def identify(self, credential: str | None, *, from_here: bool) -> Caller:
        """Who sends this key, or token of the command line.

        Args:
            from_here: whether the caller is on this machine.

        Raises:
            UnauthenticatedError: there is no such key, or none was sent and one is wanted.
        """
        known = self._keys.find(credential or "")
        if from_here and self._token and _same(credential or "", self._token):
            known = _COMMAND_LINE
        # Without keys the server listens on loopback only; should it not, nobody gets in.
        if known is None and from_here and not self._keys.in_use:
            known = LOCAL
        if known is None:
            raise UnauthenticatedError(given=credential is not None)
        return known

    @property
    def keys_in_use(self) -> bool:
        """Whether callers are told apart by keys; without any, all are one owner."""
        return self._keys.in_use

    @property
    def is_shared(self) -> bool:
        """Whether there are keys of several owners, among whom everything is divided."""
        return self._keys.is_shared

    def still_in(self, caller: Caller) -> bool:
        """Whether the caller would still be let in: its key was not revoked, or there are still no keys."""
        if caller.key_id is None:
            return not self._keys.in_use
        return caller == _COMMAND_LINE or self._keys.holds(caller.key_id)


def is_open(method: str, path: str) -> bool:
    """Whether the route wants no key; decided on the path as it was sent, before any routing."""
    return POLICY.get((method, path)) == EVERYONE


def check_route(caller: Caller | None, method: str, path: str) -> None:
    """Refuse a route to a caller whose roles do not include it.

    Args:
        caller: None for one who sent no key, which only open routes let through.
        path: the path of the route, its parameters in braces.

    Raises:
        RoleForbiddenError: the table does not let the caller in, or has no such route.
    """
    roles = POLICY.get((method, path))
    # What methods a route has is no secret among those who have a key.
    if roles == EVERYONE or (caller and method == "OPTIONS"):
        return
    if roles is None or caller is None or not caller.is_any_of(roles):
        raise RoleForbiddenError(sorted(roles or ()))


def _same(one: str, other: str) -> bool:
    digests = (hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest() for text in (one, other))
    return hmac.compare_digest(*digests)
