"""What one owner has under way at once (decision 20)."""

import asyncio

from turnlog.app.turns.in_flight import OwnerPlaces


async def test_an_owner_reads_so_much_at_once_and_nobody_else_waits_for_it() -> None:
    """T2-20: who leaves while it waits has taken no place."""
    places, order = OwnerPlaces("owner_reads", 2), list[str]()
    release = asyncio.Event()

    async def read(owner: str, name: str) -> None:
        async with places.one(owner):
            order.append(name)
            await release.wait()

    reads = [asyncio.create_task(read(name[0], name)) for name in ("a1", "a2", "a3", "a4", "b1")]
    await asyncio.sleep(0)
    assert (order, places.budget.in_use(), places.budget.reached) == (["a1", "a2", "b1"], 2, 2)

    reads[2].cancel()
    release.set()
    await asyncio.wait(reads)

    assert order == ["a1", "a2", "b1", "a4"]
    assert places.budget.in_use() == 0
