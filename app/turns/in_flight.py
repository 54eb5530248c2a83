"""What an owner may have under way at once: bytes in flight, and long computations (decision 20)."""

import asyncio
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Callable, Hashable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar

from turnlog.domain.budgets import Budget, SharedBudget
from turnlog.domain.errors import OwnersShareError
from turnlog.domain.owners import LOCAL_OWNER

MOST_BYTES = 128 * 2**20
"""In all. What a request becomes in memory beside its bytes is a few times as much."""

RETRY_S = 1

MOST_READS = 2
"""Of one owner: the log's reader serves an owner's reads one by one, and another is worked on meanwhile."""

_Result = TypeVar("_Result")


class InTurn(Protocol):
    """Runs slow work on threads, in turn by whom it is for; cancelling the future gives it up.

    It holds Python's lock most of its time: many threads of one owner would keep it from everybody else.
    """

    def __call__(self, whose: Hashable, work: Callable[[], _Result], /) -> Future[_Result]: ...


def at_once(_: Hashable, work: Callable[[], _Result], /) -> Future[_Result]:
    """Work on the caller's own thread, where nobody else waits for it."""
    future: Future[_Result] = Future()
    try:
        future.set_result(work())
    except Exception as error:
        future.set_exception(error)
    return future


class OwnerPlaces:
    """So many places for each owner, in order of arrival.

    They bound the responses and chains that are in memory while requests work on them: one of 64 MiB as
    stored is a few times as much.
    """

    def __init__(self, name: str, most: int) -> None:
        self.budget = Budget(name, most, lambda: max(self._taken.values(), default=0))
        self._most = most
        self._taken: Counter[str] = Counter()
        self._semaphores: weakref.WeakValueDictionary[str, asyncio.Semaphore] = weakref.WeakValueDictionary()

    @asynccontextmanager
    async def one(self, owner: str) -> AsyncIterator[None]:
        """Hold a place of the owner's; wait for it if need be. Whoever has one must not ask for another."""
        semaphore = self._semaphores.setdefault(owner, asyncio.Semaphore(self._most))
        if semaphore.locked():
            self.budget.reach()
        async with semaphore:
            self._taken[owner] += 1
            try:
                yield
            finally:
                self._taken[owner] -= 1
                if not self._taken[owner]:
                    del self._taken[owner]  # owners come and go


class Holding:
    """The bytes of one request, of its answer, or of a stream that several read, until they are released."""

    def __init__(self, budget: SharedBudget, owner: str = LOCAL_OWNER) -> None:
        self._budget = budget
        self._owner = owner
        self._size_bytes = 0

    def grow(self, more_bytes: int) -> None:
        """Hold so much more.

        Raises:
            OwnersShareError: the owner has as much in flight as it may; nothing has changed.
        """
        grown_bytes = self._size_bytes + more_bytes
        if not self._budget.resize(self._owner, self._size_bytes, grown_bytes):
            raise OwnersShareError("Bytes in flight", self._budget.held_by(self._owner), RETRY_S)
        self._size_bytes = grown_bytes

    def release(self) -> None:
        """Let go of everything; no effect the second time."""
        self._budget.resize(self._owner, self._size_bytes, 0)
        self._size_bytes = 0
