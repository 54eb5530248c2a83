"""The auditor's use cases: find responses, see one whole, read its conversation, compare two.

Metadata is for auditors and operators; content for auditors, and for operators that of turns that failed and
of their replays (D-18). Whoever may not read a response's content gets its story without it.
"""

import asyncio
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from typing import Literal, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from turnlog.app.audit.filters import check_may_ask
from turnlog.app.audit.said import Said, said_in
from turnlog.app.turns.retrieval import Log, Retrieval
from turnlog.domain.audit.compare import Comparison, compare
from turnlog.domain.audit.rows import AuditFilter, AuditRow
from turnlog.domain.audit.seen import PromptUnknownError, Seen, prompt_ids, seen
from turnlog.domain.audit.trees import Node, lay_out
from turnlog.domain.errors import ForbiddenError, ResponseNotFoundError
from turnlog.domain.events import Recorded
from turnlog.domain.owners import Caller
from turnlog.domain.ports import Clock, LogExporter
from turnlog.domain.redaction import withheld
from turnlog.domain.response import Response, fold_stored
from turnlog.domain.tokens import TokenIds

MOST_LINKS = 10_000
MOST_TOLD = 1_000
"""Responses of a conversation whose text is told at a time."""

_BATCH = 50

Answer = TypeVar("Answer")

Content = Literal["shown", "withheld", "expired"]
"""Whether what was said is told, withheld from this caller, or gone with the time of the response."""


class AuditLog(Log, LogExporter, Protocol):
    """The log as it is audited."""


class SeenRow(Struct, frozen=True):
    """A row, and whether its caller may read its content."""

    row: AuditRow
    content: Content


class Turn(Struct, frozen=True, kw_only=True):
    """A turn as the log has it, without content if that is not shown.

    `seen` is None if the content is not shown. `prompt_ids` are there if they were asked for, else what is
    known of why not. `attempts` are the client's tries at the same request, if there are several.
    """

    row: AuditRow
    content: Content
    events: list[Recorded]
    response: Response
    seen: Seen | None
    prompt_ids: TokenIds | None
    prompt_problem: str | None
    attempts: list[SeenRow]
    replays: list[SeenRow]


class Line(Struct, frozen=True):
    """A response in its conversation; `said` is None if it was not asked for, or is not shown."""

    node: Node
    content: Content
    said: Said | None


class Conversation(Struct, frozen=True):
    """A whole conversation in the order to read it. `cut` says that there is more of it."""

    lines: list[Line]
    cut: bool


class Audit:
    """Reads the log for auditors and operators, across all owners."""

    def __init__(self, log: AuditLog, retrieval: Retrieval, clock: Clock) -> None:
        self.log = log
        self._retrieval = retrieval
        self.clock = clock

    async def find(self, wanted: AuditFilter, caller: Caller) -> tuple[list[SeenRow], bool]:
        """One page of the responses that the filter admits, and whether there are more.

        Raises:
            ForbiddenError: the filter looks into content that the caller may not read.
            InvalidRequestError: the cursor is unknown.
        """
        check_may_ask(wanted, caller)
        page = await _read(self.log.find(wanted))
        return await self._seen_rows(page.rows, caller), page.has_more

    async def turn(self, response_id: str, caller: Caller, *, with_prompt_ids: bool = False) -> Turn:
        """Everything about one turn that is stored and that the caller may see.

        Raises:
            ResponseNotFoundError: nothing of it is stored.
        """
        head, events = await self.events(response_id, caller)
        attempts = await _read(self.log.attempts_of(response_id))
        replays = await _read(self.log.replays_of(response_id))
        # Ancestors that are gone leave a shorter chain; one that has not even itself is not asked for more.
        shown = head.content == "shown"
        groups = await _read(self.log.chain(response_id, limit=MOST_LINKS)) if shown else []
        turn = await asyncio.to_thread(_turn, head, events, groups, with_prompt_ids)
        return replace(
            turn,
            attempts=await self._seen_rows(attempts if len(attempts) > 1 else (), caller),
            replays=await self._seen_rows(replays, caller),
        )

    async def events(self, response_id: str, caller: Caller) -> tuple[SeenRow, list[Recorded]]:
        """The stored events of a response in order, without content if the caller may not read it.

        Raises:
            ResponseNotFoundError: there are none.
        """
        row, events = await self._retrieval.stored(response_id)
        head = await self._seen_row(row, caller)
        if head.content == "withheld":
            events = [replace(each, event=withheld(each.event)) for each in events]
        return head, events

    async def conversation(self, response_id: str, caller: Caller, *, with_text: bool = True) -> Conversation:
        """The conversation that a response is part of.

        Raises:
            ResponseNotFoundError: the response is not in the log.
        """
        rows = await self._family(response_id)
        if not rows:
            raise ResponseNotFoundError(response_id)
        nodes = lay_out(rows[:MOST_LINKS])
        contents = {
            each.row.response_id: each.content
            for each in await self._seen_rows([node.row for node in nodes], caller)
        }
        told = [node.row.response_id for node in nodes][:MOST_TOLD] if with_text else []
        said = await self._said([each for each in told if contents[each] == "shown"])
        lines = [Line(node, contents[node.row.response_id], said.get(node.row.response_id)) for node in nodes]
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
                    f"A comparison shows what was said, and '{turn.row.response_id}' neither failed nor "
                    "replays a turn that did: it takes the role auditor."
                )
        left, right = turns
        messages = (
            (left.seen.messages, right.seen.messages)
            if left.seen and right.seen and not (left.seen.missing or right.seen.missing)
            else None
        )
        return await asyncio.to_thread(compare, left.response, right.response, messages)

    # ── what a caller may read ────────────────────────────────────────────────────────────────────

    async def _seen_rows(self, rows: Iterable[AuditRow], caller: Caller) -> list[SeenRow]:
        return [await self._seen_row(row, caller) for row in rows]

    async def _seen_row(self, row: AuditRow, caller: Caller) -> SeenRow:
        if row.expired:
            return SeenRow(row, "expired")
        return SeenRow(row, "shown" if await self._retrieval.reads_content(caller, row) else "withheld")

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

    async def _said(self, response_ids: Sequence[str]) -> dict[str, Said]:
        said: dict[str, Said] = {}
        for start in range(0, len(response_ids), _BATCH):
            batch = response_ids[start : start + _BATCH]
            stories = await asyncio.gather(*(_read(self.log.events(each)) for each in batch))
            said |= await asyncio.to_thread(said_in, stories)
        return said


def _turn(
    head: SeenRow,
    events: list[Recorded],
    groups: Sequence[Sequence[Recorded]],
    with_prompt_ids: bool,  # noqa: FBT001 - called through a thread
) -> Turn:
    """The turn without what stands around it."""
    response = fold_stored(recorded.event for recorded in events)
    chain = [fold_stored(recorded.event for recorded in group) for group in groups]
    ids, problem = None, None
    if with_prompt_ids and head.content == "shown":
        try:
            ids = prompt_ids(response, chain[:-1])
        except PromptUnknownError as error:
            problem = str(error)
    return Turn(
        row=head.row,
        content=head.content,
        events=events,
        response=response,
        seen=seen(chain) if chain else None,
        prompt_ids=ids,
        prompt_problem=problem,
        attempts=[],
        replays=[],
    )


async def _read(asked: Future[Answer]) -> Answer:
    return await asyncio.wrap_future(asked)
