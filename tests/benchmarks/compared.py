"""turnlog beside others: the same model, the same questions, in turns within one run."""

from contextlib import AsyncExitStack
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from statistics import median
from typing import NamedTuple

from rich.table import Table

from tests.benchmarks.contestants import (
    Contestant,
    Conversation,
    Measured,
    alone,
    mlx_lm_server,
    mlx_vlm_server,
    turnlog,
)

SERVERS = {"turnlog": turnlog, "BatchGenerator": alone("bare"), "mlx_lm.server": mlx_lm_server}
if find_spec("mlx_vlm"):
    SERVERS["mlx_vlm.server"] = mlx_vlm_server
IN_PROCESS = {"turnlog's engine": alone("engine"), "BatchGenerator": alone("bare")}

_numbers = count()
_THEN = "Tell me another one, about the wind and the sea."


class Task(NamedTuple):
    """What all are asked: answers of so many tokens, in so many streams at once.

    A question of `long_words` has about 1,000 tokens.
    """

    name: str
    tokens: int
    long_words: int
    streams: tuple[int, ...] = (1, 2, 4, 8, 16)


def question(words: int = 10) -> Conversation:
    """Something new from its first words on, so that nobody has read how it begins."""
    about = "the sea and the wind " * (words // 5)
    return [
        {"role": "system", "content": f"{next(_numbers)} is the number of this conversation."},
        {"role": "user", "content": f"Tell me a long story about {about}"},
    ]


async def tables(
    task: Task, model: Path, folder: Path, starts: dict[str, Contestant], runs: int
) -> list[Table]:
    """Rates by streams, and where all are servers the first text, cold and of the next turn."""
    async with AsyncExitStack() as resources:
        who = {
            each: await resources.enter_async_context(start(model, folder)) for each, start in starts.items()
        }
        streams = Table(
            f"{task.name}: streams", "who", "tokens/s", "turnlog is … times", "first text of all, ms"
        )
        for number in task.streams:
            measured: dict[str, list[Measured]] = {each: [] for each in who}
            for run in range(1 + runs):
                for each, contestant in who.items():
                    found = await contestant.ask([question() for _ in range(number)], task.tokens)
                    # The first warms up; turnlog loads the model in it.
                    if run:
                        measured[each].append(found)
            rates = {each: median(one.rate for one in found) for each, found in measured.items()}
            ours = next(iter(rates.values()))
            for each, rate in rates.items():
                first_ms = median(one.first_s for one in measured[each]) * 1000
                decimals = 1 if rate < 100 else 0
                streams.add_row(
                    str(number), each, f"{rate:,.{decimals}f}", f"{ours / rate:.2f}", f"{first_ms:,.0f}"
                )
        found_tables = [streams]
        talking = {each: one for each, one in who.items() if one.converses}
        if talking:
            turns = Table(f"{task.name}: who", "cold, ms", "next turn, ms", "cold / next")
            both: dict[str, list[tuple[float, float]]] = {each: [] for each in talking}
            for _ in range(runs):
                for each, contestant in talking.items():
                    both[each].append(await contestant.converse(question(task.long_words), _THEN, 16))
            for each, pairs in both.items():
                cold_s, next_s = (median(column) for column in zip(*pairs, strict=True))
                turns.add_row(
                    each, f"{cold_s * 1000:,.0f}", f"{next_s * 1000:,.0f}", f"{cold_s / next_s:.1f}"
                )
            found_tables.append(turns)
    return found_tables
