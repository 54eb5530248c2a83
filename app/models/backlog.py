"""What the requests that wait for their slot hold in memory, with a bound (D-38).

Their number alone bounds nothing: one is a word, another ten megabytes and its prompt.
"""

from collections.abc import Callable

from turnlog.domain.errors import BacklogFullError


class Backlog:
    """The bytes of all requests that wait.

    Args:
        max_bytes: None for no bound.
        retry_after_s: what one that is refused is told to wait.
    """

    def __init__(self, max_bytes: int | None, retry_after_s: Callable[[], int]) -> None:
        self._max_bytes = max_bytes
        self._retry_after_s = retry_after_s
        self.size_bytes = 0

    def resize(self, held_bytes: int, size_bytes: int) -> None:
        """Let a request that holds `held_bytes` hold `size_bytes`. One that waits alone may be of any size.

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
