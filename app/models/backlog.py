"""A bound on the memory held by requests that wait for their slot (D-38).

Limiting their number is not enough: one is a word, another ten megabytes plus its prompt.
"""

from collections.abc import Callable

from turnlog.domain.errors import BacklogFullError


class Backlog:
    """Counts the bytes of all waiting requests.

    Args:
        max_bytes: None for no bound.
        retry_after_s: the `Retry-After` of a refusal.
    """

    def __init__(self, max_bytes: int | None, retry_after_s: Callable[[], int]) -> None:
        self._max_bytes = max_bytes
        self._retry_after_s = retry_after_s
        self.size_bytes = 0

    def resize(self, held_bytes: int, size_bytes: int) -> None:
        """Change what a request holds from `held_bytes` to `size_bytes`. A lone one may be of any size.

        Raises:
            BacklogFullError: there is no room; nothing has changed.
        """
        others_bytes = self.size_bytes - held_bytes
        grows = size_bytes > held_bytes
        if (
            grows
            and others_bytes
            and self._max_bytes is not None
            and others_bytes + size_bytes > self._max_bytes
        ):
            raise BacklogFullError(others_bytes, self._max_bytes, self._retry_after_s())
        self.size_bytes = others_bytes + size_bytes
