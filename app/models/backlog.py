"""A bound on the memory held by requests that wait for their slot (D-38).

Limiting their number is not enough: one is a word, another ten megabytes plus its prompt.
"""

from collections.abc import Callable
from math import inf

from turnlog.domain.budgets import SharedBudget
from turnlog.domain.errors import BacklogFullError
from turnlog.domain.owners import LOCAL_OWNER


class Backlog:
    """Counts the bytes of all waiting requests, and of each owner.

    Args:
        max_bytes: None for no bound.
        retry_after_s: the `Retry-After` of a refusal.
        is_shared: whether there are several owners (`SharedBudget`).
    """

    def __init__(
        self,
        max_bytes: int | None,
        retry_after_s: Callable[[], int],
        is_shared: Callable[[], bool] = lambda: False,
    ) -> None:
        self.budget = SharedBudget("waiting_bytes", inf if max_bytes is None else max_bytes, is_shared)
        self._retry_after_s = retry_after_s

    @property
    def size_bytes(self) -> int:
        """How much they hold together."""
        return self.budget.total

    def resize(self, held_bytes: int, size_bytes: int, owner: str = LOCAL_OWNER) -> None:
        """Change what a request of `owner` holds. A lone one may be of any size.

        Raises:
            BacklogFullError: there is no room; nothing has changed.
        """
        if not self.budget.resize(owner, held_bytes, size_bytes):
            others_bytes = self.size_bytes - held_bytes
            raise BacklogFullError(others_bytes, int(self.budget.limit), self._retry_after_s())
