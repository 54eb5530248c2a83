"""One budget of memory for weights, the running turns and the warm caches."""

from collections import Counter, deque
from collections.abc import Callable
from typing import Literal

Use = Literal["weights", "running", "warm"]


class Memory:
    """Grants claims in order of arrival, as far as the budget goes.

    A big claim is not passed by small ones while the end of the running turns will make room for it. If it
    has to wait until a model is idle, it is: else turns of that model would wait for it, and it for them.

    Invariant: the bytes of all granted claims are at most the budget.

    Args:
        budget_bytes: how much there is; None grants everything.
    """

    def __init__(self, budget_bytes: int | None) -> None:
        self.budget_bytes = budget_bytes
        self.used: Counter[Use] = Counter()
        self._waiting: deque[Claim] = deque()
        self._reclaim: Callable[[int], int] = _nothing_to_reclaim
        self._held_bytes: Callable[[], int] = lambda: 0
        self._granting = False

    def reclaim_by(self, reclaim: Callable[[int], int]) -> None:
        """Have `reclaim` give up bytes that are missing, now or soon; it says how many it cannot."""
        self._reclaim = reclaim

    def count_held(self, held_bytes: Callable[[], int]) -> None:
        """Have the budget count what is really held, where that is more than what is claimed."""
        self._held_bytes = held_bytes

    @property
    def free_bytes(self) -> float:
        """What is neither claimed nor held; infinite without a budget."""
        if self.budget_bytes is None:
            return float("inf")
        return self.budget_bytes - max(self.used.total(), self._held_bytes())

    @property
    def is_waited_for(self) -> bool:
        """Whether somebody waits for room."""
        return bool(self._waiting)

    def take(self, use: Use, count_bytes: int) -> "Claim | None":
        """A claim that is granted now, without anything being given up for it; None if there is no room."""
        if self._waiting or count_bytes > self.free_bytes:
            return None
        claim = Claim(self, use, count_bytes, enter=lambda: None)
        self._grant(claim)
        return claim

    def ask(self, use: Use, count_bytes: int, enter: Callable[[], None]) -> "Claim":
        """A claim that is granted when it is its turn and there is room; `enter` is called then."""
        claim = Claim(self, use, count_bytes, enter)
        self._waiting.append(claim)
        self.look_again()
        return claim

    def look_again(self) -> None:
        """Grant what can be granted; called when something was given back or may be reclaimed now."""
        if self._granting:
            return  # reclaiming gives claims back, and the loop below sees it
        self._granting = True
        try:
            while claim := self._next():
                self._waiting.remove(claim)
                self._grant(claim)
                claim.enter()
        finally:
            self._granting = False

    def suffices_after_turns(self, count_bytes: int) -> bool:
        """Whether there is room, or will be once the running turns have ended; gives up what it can."""
        missing_bytes = count_bytes - self.free_bytes
        return missing_bytes <= 0 or self._reclaim(int(missing_bytes)) <= self.used["running"]

    def _next(self) -> "Claim | None":
        for claim in list(self._waiting):
            comes = self.suffices_after_turns(claim.count_bytes)
            if claim.count_bytes <= self.free_bytes:
                return claim
            if comes:
                return None
        return None

    def _grant(self, claim: "Claim") -> None:
        claim.granted = True
        self.used[claim.use] += claim.count_bytes

    def _leave(self, claim: "Claim") -> None:
        if claim.granted:
            claim.granted = False
            self.used[claim.use] -= claim.count_bytes
        elif claim in self._waiting:
            self._waiting.remove(claim)
        self.look_again()

    def _resize(self, claim: "Claim", count_bytes: int) -> None:
        self.used[claim.use] += count_bytes - claim.count_bytes
        claim.count_bytes = count_bytes
        self.look_again()


class Claim:
    """Some of the budget: waited for, then held until it is given back."""

    __slots__ = ("_memory", "count_bytes", "enter", "granted", "use")

    def __init__(self, memory: Memory, use: Use, count_bytes: int, enter: Callable[[], None]) -> None:
        self._memory = memory
        self.use: Use = use
        self.count_bytes = count_bytes
        self.enter = enter
        self.granted = False

    def resize(self, count_bytes: int) -> None:
        """Correct a granted claim by what was really taken."""
        assert self.granted, "only what was granted is known"
        self._memory._resize(self, count_bytes)

    def leave(self) -> None:
        """Give it back, or stop waiting for it; without effect the second time."""
        self._memory._leave(self)


def _nothing_to_reclaim(missing_bytes: int) -> int:
    """What is called while there is nothing that could be given up."""
    return missing_bytes
