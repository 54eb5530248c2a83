"""Whose a response is, and what the callers of the service may do with it (D-18)."""

import re
from enum import StrEnum

from msgspec import Struct

LOCAL_OWNER = "local"
"""The one owner there is while no keys are in use."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}", re.ASCII)


def is_owner_name(text: str) -> bool:
    """Whether an owner can be called that: 1 … 64 letters, digits and `._@+-`, a letter or digit first."""
    return _NAME.fullmatch(text) is not None


class Role(StrEnum):
    """What a key is for; a closed set. Nobody gains a role over the network."""

    CLIENT = "client"
    """Makes responses and reads those of its own owner."""
    AUDITOR = "auditor"
    """Reads the content of every owner's turns."""
    OPERATOR = "operator"
    """Sees how turns went, reads the failed ones, runs them again, looks after models."""


class Caller(Struct, frozen=True):
    """Who sent a request. `key_id` names the key that it came with; None if none was needed."""

    owner: str
    roles: frozenset[Role]
    key_id: str | None = None

    def is_any_of(self, roles: frozenset[Role]) -> bool:
        """Whether the caller has one of these roles."""
        return not self.roles.isdisjoint(roles)

    def reads_content(self, *, failed: bool) -> bool:
        """Whether the caller may read on the audit routes what anybody asked and was answered in a turn.

        Args:
            failed: whether the turn failed, or runs a turn that failed again.
        """
        return Role.AUDITOR in self.roles or (failed and Role.OPERATOR in self.roles)


LOCAL = Caller(LOCAL_OWNER, frozenset(Role))
"""Who asks a server without keys, and the command line on the server's own machine."""
