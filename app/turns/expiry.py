"""The sweep: removes the content of expired responses, a small step at a time (D-14, R-029)."""

import asyncio
import logging

from turnlog.app.turns.persistence import Persistence
from turnlog.domain.errors import StorageError
from turnlog.domain.ports import Clock, ContentExpirer

log = logging.getLogger("turnlog")

PERIOD_S = 300.0
"""How long the sweep rests when there is nothing left to remove (R-029)."""


async def sweep(expirer: ContentExpirer, persistence: Persistence, clock: Clock) -> None:
    """Sweep until cancelled. Each step is one short transaction; turns are written between two of them."""
    while True:
        try:
            # The wait for each step lets everything else go on.
            while await asyncio.wrap_future(
                expirer.expire(clock.now_ms() // 1000, spare=persistence.open_ids)
            ):
                pass
        except StorageError:
            log.exception("[responses] the sweep of expired responses failed and will be retried")
        await asyncio.sleep(PERIOD_S)
