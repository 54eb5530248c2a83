"""Time and chance, which the domain gets as arguments."""

from typing import Protocol

from turnlog.domain.ids import IdKind


class Clock(Protocol):
    """The time in the domain's units."""

    def now_ms(self) -> int:
        """Unix time in milliseconds."""


class IdSource(Protocol):
    """Where ids and seeds come from."""

    def new_id(self, kind: IdKind) -> str:
        """A fresh typed id."""

    def new_seed(self) -> int:
        """A fresh sampling seed, 0 … 2**32 - 1."""
