"""Reacts when engines hold more memory than the budget: they release caches, then one is aborted."""

import logging
from collections.abc import Sequence
from typing import Final
from weakref import WeakKeyDictionary

from turnlog.domain.ports import InferenceEngine

log = logging.getLogger("turnlog")

LOOK_S: Final = 1.0
"""How often to look."""

LOOKS_TO_ACT: Final = 3
"""An engine must have released memory within this many checks of the first request."""


class Pressure:
    """Checks the memory that engines report. The one that has grown most beyond its weights is to blame.

    Args:
        budget_bytes: what they may hold together; None for no bound.
    """

    def __init__(self, budget_bytes: int | None) -> None:
        self._budget_bytes = budget_bytes
        self._requests: WeakKeyDictionary[InferenceEngine, int] = WeakKeyDictionary()

    def look(self, engines: Sequence[InferenceEngine]) -> int:
        """Make an engine release memory, or abort one that did not; returns the bytes over budget."""
        held_bytes = {engine: engine.vitals().memory_bytes for engine in engines}
        excess_bytes = sum(held_bytes.values()) - (self._budget_bytes or 0)
        if self._budget_bytes is None or excess_bytes <= 0:
            self._requests.clear()
            return 0
        engine = max(engines, key=lambda each: held_bytes[each] - each.info.weight_bytes)
        looks = self._requests.get(engine, 0)
        self._requests[engine] = looks + 1
        if looks == 0:
            log.warning("[models] the engines exceed the memory budget by %d bytes", excess_bytes)
            engine.release_memory()
        elif looks >= LOOKS_TO_ACT:
            engine.abort(
                f"its process held {held_bytes[engine]:,} bytes, and all engines together "
                f"{excess_bytes:,} more than the memory budget"
            )
        return excess_bytes
