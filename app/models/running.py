"""What a turn holds while it runs: a slot in its model's lane, the gate, memory for its tokens (R-057)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from turnlog.app.models.admission import Admission
from turnlog.app.models.gate import Gate
from turnlog.app.models.memory import Memory, MemoryReservation
from turnlog.app.models.supervision import Supervisor
from turnlog.app.models.waiting import Releasable, acquired
from turnlog.domain.errors import BindingChangedError, ModelUnavailableError
from turnlog.domain.ports import Clock


@asynccontextmanager
async def running(
    admission: Admission,
    most_tokens: int,
    *,
    gate: Gate,
    memory: Memory,
    supervisor: Supervisor,
    clock: Clock,
    wait_s: float,
) -> AsyncIterator[MemoryReservation]:
    """Hold slot, gate and memory inside the block.

    Args:
        most_tokens: the most tokens that the turn can hold.
        wait_s: how long to wait for memory.

    Yields:
        The memory reservation.

    Raises:
        BindingChangedError: the name has been rebound to another model (R-139).
        ModelUnavailableError: no memory became free in time.
    """
    lease, held = admission.lease, list[Releasable]()
    try:
        held.append(await acquired(partial(lease.lane.slot, admission.reservation)))
        admission.weigh(0)
        if not lease.holds:
            raise BindingChangedError(lease.name, "while the request was queued")
        held.append(await acquired(gate.read))
        reservation = await _memory(memory, most_tokens * lease.engine.info.kv_bytes_per_token, wait_s)
        held.append(reservation)
        # Last, so that nothing happens between this and the engine.
        await supervisor.until_up(lease.binding)
        began_ms = clock.now_ms()
        try:
            yield reservation
        finally:
            lease.lane.pace.note((clock.now_ms() - began_ms) / 1000)
    finally:
        for each in reversed(held):
            each.release()


async def _memory(memory: Memory, kv_bytes: int, wait_s: float) -> MemoryReservation:
    try:
        async with asyncio.timeout(wait_s):
            return await acquired(partial(memory.ask, "running", kv_bytes))
    except TimeoutError:
        raise ModelUnavailableError(
            f"No memory became free for this turn within {wait_s:g} s. Retry later."
        ) from None
