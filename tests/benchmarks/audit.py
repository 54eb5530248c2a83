"""Measures the audit side of the store on many turns: every filter, export, import and reindex.

`python -m tests.benchmarks.audit [N]`: N is how many turns, 10,000 and then 100,000 if it is left out.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import accumulate, islice
from pathlib import Path
from random import Random

from rich.console import Console
from rich.table import Table

from turnlog.adapters.eventstore.codec import EventMapper
from turnlog.adapters.eventstore.recorder import EventDatastore, EventRecorder
from turnlog.adapters.eventstore.store import open_reader, reindex
from turnlog.adapters.eventstore.transfer import import_events
from turnlog.domain.audit.filters import AuditFilter
from turnlog.domain.events import (
    GenerationStarted,
    ItemClosed,
    ItemExtended,
    ItemOpened,
    Recorded,
    ResponseCreated,
    ResponseEvent,
    Sampling,
    TurnCommitted,
    TurnFailed,
    TurnPersisted,
)
from turnlog.domain.items import FunctionCallItem, MessageItem
from turnlog.domain.messages import Message
from turnlog.domain.tokens import pack, record_prompt
from turnlog.domain.usage import Usage

START_MS = 1_764_000_000_000
EVERY_MS = 700
TURNS_PER_TRANSACTION = 500
ANSWER_WORDS = 60
SYLLABLES = (
    "ka",
    "ren",
    "to",
    "mi",
    "sol",
    "ver",
    "an",
    "du",
    "pel",
    "ist",
    "or",
    "gam",
    "ule",
    "shi",
    "ben",
)

Rows = list[tuple[str, str, str]]


class Story:
    """Turns that a small office might have had; the same ones for the same number."""

    def __init__(self, turns: int) -> None:
        self._random = Random(1)
        self._turns = turns
        count = 20_000
        self._words = [
            "".join(self._random.choices(SYLLABLES, k=self._random.randint(1, 4))) for _ in range(count)
        ]
        # Some words are in every answer and most are rare, as in any language.
        self._weights = list(accumulate(1 / (rank + 1) for rank in range(count)))

    def turn(self, n: int) -> list[Recorded]:
        """The events of turn number `n`."""
        pick = self._random
        response_id, at_ms = response_id_of(n), START_MS + n * EVERY_MS
        story: list[ResponseEvent] = [self._created(n, response_id, at_ms), _started(at_ms + 5)]
        if n % 50 == 7:
            story.append(TurnFailed(at_ms=at_ms + 900, reason="error", message="the engine raised"))
            return recorded(response_id, story)
        answer = self._text(ANSWER_WORDS)
        item = MessageItem(f"msg_{n:032x}", "completed", answer)
        pieces = [f"{word} " for word in answer.split()]
        story.append(
            ItemOpened(at_ms=at_ms + 50, output_index=0, item=MessageItem(item.id, "in_progress", ""))
        )
        for first in range(0, len(pieces), 10):
            deltas = tuple(pieces[first : first + 10])
            story.append(ItemExtended(at_ms=at_ms + 60 + first, item_id=item.id, deltas=deltas))
        story.append(ItemClosed(at_ms=at_ms + 800, output_index=0, item=item))
        if n % 10 == 0:
            name = "send_rocket" if n % 20_000 == 0 else "look_up"
            call = FunctionCallItem(f"fc_{n:032x}", f"call_{n}", name, '{"what":"weather"}', "completed")
            story.append(ItemOpened(at_ms=at_ms + 801, output_index=1, item=call))
            story.append(ItemClosed(at_ms=at_ms + 850, output_index=1, item=call))
        ended_ms = at_ms + (60_000 if n % 10_000 == 3 else pick.randint(860, 1500))
        usage = Usage(pick.randint(20, 500), 9_000 if n % 10_000 == 5 else ANSWER_WORDS)
        ids = pack(range(ANSWER_WORDS))
        story.append(
            TurnCommitted(at_ms=ended_ms, status="completed", usage=usage, output_ids=ids, alone=True)
        )
        story.append(TurnPersisted(at_ms=ended_ms + 2, write_ms=1.5))
        return recorded(response_id, story)

    def _created(self, n: int, response_id: str, at_ms: int) -> ResponseCreated:
        question = self._text(self._random.randint(5, 40))
        if n % 25_000 == 11:
            question += " Ypsilanti"
        return ResponseCreated(
            at_ms=at_ms,
            response_id=response_id,
            model="rare" if n % 5_000 == 2 else "smol",
            input=(Message("user", question),),
            sampling=Sampling(temperature=0.7, top_p=0.95, seed=n),
            expires_at=at_ms // 1000 + 90 * 86_400,
            instance_id=1,
            boot_id="boot",
            owner="ada" if n < self._turns // 50 else f"owner{n % 7}",
            previous_response_id=response_id_of(n - 1) if n % 8 else None,
            metadata={"job": str(n // 100), "team": "blue"},
            replay_of=response_id_of(n - 1) if n % 1_000 == 8 else None,
        )

    def _text(self, words: int) -> str:
        return " ".join(self._random.choices(self._words, cum_weights=self._weights, k=words))


def response_id_of(n: int) -> str:
    """The id of turn number `n`; ids sort as the turns do."""
    return f"resp_{n:032x}"


def _started(at_ms: int) -> GenerationStarted:
    return GenerationStarted(
        at_ms=at_ms,
        cache_class="hit",
        model_fingerprint="m" * 64,
        tokenizer_fingerprint="t" * 64,
        prompt=record_prompt(tuple(range(60))),
        output_budget_tokens=2048,
    )


def recorded(response_id: str, events: list[ResponseEvent]) -> list[Recorded]:
    """The events in their places."""
    return [Recorded(response_id, version, event) for version, event in enumerate(events, start=1)]


def fill(path: Path, turns: int) -> int:
    """Store so many turns, in few large transactions; how many events they have."""
    datastore = EventDatastore(path)
    recorder, mapper, story = EventRecorder(datastore), EventMapper(), Story(turns)
    events = 0
    with closing(datastore):
        recorder.create_table()
        numbers = iter(range(turns))
        while batch := list(islice(numbers, TURNS_PER_TRANSACTION)):
            stored = [mapper.to_stored_event(each) for n in batch for each in story.turn(n)]
            recorder.insert_events(stored)
            events += len(stored)
    return events


def filters(turns: int) -> Iterator[tuple[str, AuditFilter]]:
    """Each filter once where it is met by many and once where it is met by few, and some together."""
    middle_ms = START_MS + turns // 2 * EVERY_MS
    middle = response_id_of(turns // 2)
    yield "nothing", AuditFilter(limit=50)
    yield "oldest first", AuditFilter(limit=50, order="asc")
    yield "after, in the middle", AuditFilter(limit=50, after=middle)
    yield "since and until", AuditFilter(limit=50, since_ms=middle_ms, until_ms=middle_ms + 3_600_000)
    yield "state failed", AuditFilter(limit=50, state="failed")
    yield "state persisted", AuditFilter(limit=50, state="persisted")
    yield "state in_progress (none)", AuditFilter(limit=50, state="in_progress")
    yield "status completed", AuditFilter(limit=50, status="completed")
    yield "status cancelled (none)", AuditFilter(limit=50, status="cancelled")
    yield "reason error", AuditFilter(limit=50, reason="error")
    yield "model, common", AuditFilter(limit=50, model="smol")
    yield "model, rare", AuditFilter(limit=50, model="rare")
    yield "failed ones of the rare model", AuditFilter(limit=50, model="rare", status="failed")
    yield "owner of the oldest 2 %", AuditFilter(limit=50, owner="ada")
    yield "owner of the oldest 2 %, failed", AuditFilter(limit=50, owner="ada", status="failed")
    yield "chain", AuditFilter(limit=50, chain=middle)
    yield "metadata, in every turn", AuditFilter(limit=50, metadata={"team": "blue"})
    yield "metadata, rare", AuditFilter(limit=50, metadata={"job": "5"})
    yield "tool, common", AuditFilter(limit=50, tool="look_up")
    yield "tool, rare", AuditFilter(limit=50, tool="send_rocket")
    yield "latency, common", AuditFilter(limit=50, min_latency_ms=1000)
    yield "latency, rare", AuditFilter(limit=50, min_latency_ms=30_000)
    yield "tokens, common", AuditFilter(limit=50, min_tokens=100)
    yield "tokens, rare", AuditFilter(limit=50, min_tokens=9_000)
    yield "replay of", AuditFilter(limit=50, replay_of=response_id_of(1_007))
    yield "text, in every turn", AuditFilter(limit=50, q="ren")
    yield "text, a common phrase", AuditFilter(limit=50, q="ka ren")
    yield "text, a word", AuditFilter(limit=50, q="soldugam")
    yield "text, common letters, nowhere", AuditFilter(limit=50, q="kare nkar enka")
    yield "text, a name", AuditFilter(limit=50, q="ypsilanti")
    yield "text, common, of the oldest 2 %", AuditFilter(limit=50, q="ren", owner="ada")
    yield "text, common, in failed turns", AuditFilter(limit=50, q="ren", status="failed")
    yield "text, common, of the rare model", AuditFilter(limit=50, q="ren", model="rare")


def median_ms(look: Callable[[], object], repeats: int = 7) -> float:
    """How long a look takes, in the middle of some."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        look()
        times.append((time.perf_counter() - began) * 1000)
    return statistics.median(times)


def measure(turns: int, folder: Path) -> Rows:
    """Rows of what, how much, and the aim."""
    path, copy, exported = folder / "turnlog.db", folder / "copy.db", folder / "log.jsonl"
    rows: Rows = []

    def seconds(what: str, work: Callable[[], int], aim: str = "") -> None:
        began = time.perf_counter()
        events = work()
        took_s = time.perf_counter() - began
        rows.append((what, f"{took_s:,.1f} s, {events / took_s:,.0f} events/s", aim))

    def export() -> int:
        with closing(open_reader(path)) as reader, exported.open("wb") as file:
            told = reader.export()
            for chunk in told:
                file.write(chunk)
            return told.done

    def import_() -> int:
        with exported.open("rb") as file:
            return import_events(copy, file)

    seconds(f"fill {turns:,} turns", lambda: fill(path, turns))
    rows.append(("bytes a turn in the file", f"{path.stat().st_size / turns:,.0f}", ""))
    with closing(open_reader(path)) as reader:
        for name, wanted in filters(turns):
            found = len(reader.find(wanted).result().rows)
            took_ms = median_ms(lambda wanted=wanted: reader.find(wanted).result())  # type: ignore[misc]
            rows.append((f"find: {name} ({found})", f"{took_ms:.1f} ms", "< 50 ms"))
        looks = (reader.family, reader.attempts_of, reader.replays_of)
        for look in looks:
            took_ms = median_ms(lambda look=look: look(response_id_of(turns // 2)).result())  # type: ignore[misc]
            rows.append((look.__name__, f"{took_ms:.1f} ms", "< 50 ms"))
    seconds("export", export, "> 50,000 events/s")
    seconds("import", import_)
    seconds("reindex", lambda: reindex(path))
    return rows


def main() -> None:
    """Measure and print."""
    for turns in [int(argument) for argument in sys.argv[1:]] or [10_000, 100_000]:
        with tempfile.TemporaryDirectory() as work:
            rows = measure(turns, Path(work))
        table = Table("measured", "figure", "aim", title=f"{turns:,} turns")
        for row in rows:
            table.add_row(*row)
        Console().print(table)


if __name__ == "__main__":
    main()
