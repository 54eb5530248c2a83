"""The auditor's use cases: find responses, see one whole, read its conversation, compare two.

Metadata is for auditors and operators; content for auditors, and for operators that of turns that failed and
of their replays (D-18). A caller who may not read the content of a response gets its events without it.
"""

import asyncio
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from typing import Protocol, TypeVar

from msgspec.structs import replace

from turnlog.app.turns.retrieval import Log, Retrieval
from turnlog.domain.audit.compare import Comparison, compare
from turnlog.domain.audit.filters import AuditFilter, check_may_ask
from turnlog.domain.audit.rows import AuditRow
from turnlog.domain.audit.trees import lay_out
from turnlog.domain.audit.usage import UsageKey, UsageSum
from turnlog.domain.audit.views import (
    Conversation,
    Exchange,
    Line,
    PageView,
    RowView,
    TurnView,
    exchanges,
    turn_view,
)
from turnlog.domain.budgets import Budget
from turnlog.domain.errors import ForbiddenError, ResponseNotFoundError
from turnlog.domain.events import Recorded
from turnlog.domain.owners import Caller
from turnlog.domain.ports import Clock, LogExporter
from turnlog.domain.redaction import withheld

MOST_LINKS = 10_000
MOST_TOLD = 1_000
"""Responses of a conversation whose text is told at a time."""

MOST_TOLD_BYTES = 16 * 2**20
"""Of text in one conversation."""

_BATCH = 4

Answer = TypeVar("Answer")


class AuditLog(Log, LogExporter, Protocol):
    """The log as it is audited."""


class Audit:
    """Reads the log of all owners, for auditors and operators."""

    def __init__(self, log: AuditLog, retrieval: Retrieval, clock: Clock) -> None:
        self.log = log
        self._retrieval = retrieval
        self.clock = clock
        self.told_bytes = Budget("conversation_bytes", MOST_TOLD_BYTES)

    async def find(self, wanted: AuditFilter, caller: Caller) -> PageView:
        """One page of the responses that the filter admits.

        Raises:
            ForbiddenError: the filter looks into content that the caller may not read.
            InvalidRequestError: the cursor is unknown.
        """
        check_may_ask(wanted, caller)
        page = await _read(self.log.find(wanted))
        return PageView(await self._views(page.rows, caller), page)

    async def turn(self, response_id: str, caller: Caller, *, with_prompt_ids: bool = False) -> TurnView:
        """Everything about one turn that is stored and that the caller may see.

        Raises:
            ResponseNotFoundError: nothing of it is stored.
        """
        head, events = await self.events(response_id, caller)
        attempts = await _read(self.log.attempts_of(response_id))
        replays = await _read(self.log.replays_of(response_id))
        # Ancestors that are gone leave a shorter chain; one that has not even itself is not asked for more.
        shown = head.content == "shown"
        chain = await _read(self.log.chain(response_id, limit=MOST_LINKS)) if shown else []
        return await asyncio.to_thread(
            turn_view,
            head,
            events,
            chain,
            attempts=await self._views(attempts, caller),
            replays=await self._views(replays, caller),
            with_prompt_ids=with_prompt_ids,
        )

    async def events(self, response_id: str, caller: Caller) -> tuple[RowView, list[Recorded]]:
        """The stored events of a response in order, without content if the caller may not read it.

        Raises:
            ResponseNotFoundError: there are none.
        """
        row, events = await self._retrieval.stored(response_id)
        head = await self._view(row, caller)
        if head.content == "withheld":
            events = [replace(each, event=withheld(each.event)) for each in events]
        return head, events

    async def conversation(self, response_id: str, caller: Caller, *, with_text: bool = True) -> Conversation:
        """The conversation that a response is part of; its first texts, up to `MOST_TOLD_BYTES`.

        Raises:
            ResponseNotFoundError: the response is not in the log.
        """
        rows = await self._family(response_id)
        if not rows:
            raise ResponseNotFoundError(response_id)
        nodes = lay_out(rows[:MOST_LINKS])
        views = await self._views([node.row for node in nodes], caller)
        told = [view.row.response_id for view in views[:MOST_TOLD] if with_text and view.content == "shown"]
        said = await self._exchanges(told)
        lines = [
            Line(view.row, view.content, node.kind, node.depth, said.get(view.row.response_id))
            for node, view in zip(nodes, views, strict=True)
        ]
        return Conversation(lines, cut=len(rows) > MOST_LINKS)

    async def compare(self, a: str, b: str, caller: Caller) -> Comparison:
        """Two turns beside each other.

        Raises:
            ResponseNotFoundError: one of them is not in the log.
            ForbiddenError: the caller may not read the content of one of them.
        """
        turns = [await self.turn(response_id, caller) for response_id in (a, b)]
        for turn in turns:
            if turn.content == "withheld":
                raise ForbiddenError(
                    f"Comparing '{turn.row.response_id}' requires the role auditor: it neither failed nor "
                    "replays a failed turn."
                )
        left, right = turns
        return await asyncio.to_thread(compare, left.response, right.response, (left.seen, right.seen))

    async def usage(
        self, by: Sequence[UsageKey], *, since_ms: int | None = None, until_ms: int | None = None
    ) -> list[UsageSum]:
        """Sums of turns and tokens over the responses created in that time, the most tokens first."""
        return await _read(self.log.usage(by, since_ms=since_ms, until_ms=until_ms))

    # ── what a caller may read ────────────────────────────────────────────────────────────────────

    async def _views(self, rows: Iterable[AuditRow], caller: Caller) -> list[RowView]:
        return [await self._view(row, caller) for row in rows]

    async def _view(self, row: AuditRow, caller: Caller) -> RowView:
        if row.expired:
            return RowView(row, "expired")
        if row.deleted:
            return RowView(row, "withheld")  # until it is removed
        return RowView(row, "shown" if await self._retrieval.reads_content(caller, row) else "withheld")

    # ── what the log has ──────────────────────────────────────────────────────────────────────────

    async def _family(self, response_id: str) -> list[AuditRow]:
        """The conversation's rows, with the attempts at its first request, which are roots of their own."""
        rows = await _read(self.log.family(response_id, limit=MOST_LINKS + 1))
        if not rows:
            return []
        known = {row.response_id for row in rows}
        for attempt in await _read(self.log.attempts_of(rows[0].response_id)):
            if attempt.response_id not in known and attempt.previous_response_id is None:
                family = await _read(self.log.family(attempt.response_id, limit=MOST_LINKS + 1))
                rows += [row for row in family if row.response_id not in known]
                known |= {row.response_id for row in family}
        return rows

    async def _exchanges(self, response_ids: Sequence[str]) -> dict[str, Exchange]:
        found: dict[str, Exchange] = {}
        left_bytes = self.told_bytes.limit
        for start in range(0, len(response_ids), _BATCH):
            batch = response_ids[start : start + _BATCH]
            stories = await asyncio.gather(*(_read(self.log.events(each)) for each in batch))
            for response_id, exchange in (await asyncio.to_thread(exchanges, stories)).items():
                left_bytes -= exchange.size_bytes
                if left_bytes < 0:
                    self.told_bytes.reach()
                    return found
                found[response_id] = exchange
        return found


async def _read(asked: Future[Answer]) -> Answer:
    return await asyncio.wrap_future(asked)
