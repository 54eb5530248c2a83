"""Finds the responses that meet an auditor's conditions, driven by the index of the most selective one.

Each condition's matches are counted first, up to `NARROW`. A condition with fewer leads: its index supplies
the candidates, and the others are checked on each. If none is that selective, matches are frequent, and
scanning in the order of creation soon fills a page. A text that is too short for the text index is looked for
in the events of the candidates, so far as a bound allows.
"""

# Statements are joined of the pieces in this file; whatever comes from outside is a parameter.
# ruff: noqa: S608

import json
import logging
from collections.abc import Iterator
from typing import Any, NamedTuple

from eventsourcing.sqlite import SQLiteCursor

from turnlog.adapters.eventstore import readmodel, textindex
from turnlog.adapters.eventstore.codec import EventMapper
from turnlog.adapters.owner_queue import check_wanted
from turnlog.domain.audit.filters import AuditFilter
from turnlog.domain.audit.folding import folded
from turnlog.domain.audit.rows import Scan
from turnlog.domain.errors import InvalidRequestError, StorageError

log = logging.getLogger("turnlog")

NARROW = 1000
"""Fewer candidates than this are sorted faster than scanned in order."""

_FIRST_CHUNK = 128
_LARGEST_CHUNK = 4096
"""How many responses the text index is queried for at a time; few at first, which may suffice."""

SCANNED_RESPONSES = 5_000
SCANNED_CHARACTERS = 10_000_000
"""Of so many a search reads the texts themselves for one page, which takes about a second."""

_STATUSES_OF_STATE = {
    "created": ("queued",),
    "in_progress": ("in_progress",),
    "persisted": ("completed", "incomplete"),
    "failed": ("failed", "cancelled"),
}


class _Condition(NamedTuple):
    """`holds` is what must hold of a row of `responses`; `source` is where the rows are for which it does.

    `leads` is what must hold in the source, if not the same. `order` is the table in whose creation order
    the source gives its rows, None if it gives them in another order.
    """

    holds: str
    source: str
    leads: str = ""
    order: str | None = "responses"

    def met_by(self, cursor: SQLiteCursor, parameters: dict[str, Any]) -> int:
        """How many responses meet it, up to `NARROW`."""
        some = f"SELECT 1 FROM {self.source} WHERE {self.leads or self.holds} LIMIT {NARROW}"
        cursor.execute(f"SELECT count(*) FROM ({some})", parameters)
        (count,) = cursor.fetchone()
        return int(count)


_ALL = _Condition("TRUE", "responses INDEXED BY responses_newest")


class _Place(NamedTuple):
    created_ms: int
    n: int


class Finder:
    """Finds the responses of one filter. Use it once, in one transaction.

    Raises:
        InvalidRequestError: `after` is not the id of a response that can be seen.
    """

    def __init__(self, cursor: SQLiteCursor, mapper: EventMapper, wanted: AuditFilter) -> None:
        self._cursor = cursor
        self._mapper = mapper
        self._wanted = wanted
        self._text = folded(wanted.q or "")
        self._scans = 0 < len(self._text) < textindex.SHORTEST
        self._parameters: dict[str, Any] = {}
        self._after = self._place_after() if wanted.after else None
        conditions = list(self._conditions())
        self._text_is_common = False
        if self._text and not self._scans:
            matches = textindex.matches(cursor, self._text, limit=NARROW)
            self._text_is_common = len(matches) == NARROW
            if not self._text_is_common:
                conditions.insert(0, self._among(matches))
        self._lead = self._leading(conditions)
        self._checks = [each for each in conditions if each is not self._lead]

    def find(self, limit: int) -> tuple[list[int], Scan | None]:
        """The numbers of the responses, in the order that is wanted, at most `limit`; how a scan went."""
        if self._scans:
            return self._scanned(limit)
        if self._text_is_common:
            return self._with_common_text(limit), None
        return [place.n for place in self._select(self._after, limit)], None

    def _with_common_text(self, limit: int) -> list[int]:
        found: list[int] = []
        for chunk in self._chunks():
            matching = textindex.matches_among(self._cursor, self._text, [place.n for place in chunk])
            found += [place.n for place in chunk if place.n in matching]
            if len(found) >= limit:
                break
        return found[:limit]

    def _scanned(self, limit: int) -> tuple[list[int], Scan]:
        """Those that have the text, of as many as the bound allows to look at."""
        found: list[int] = []
        looked_at, characters, last, cut = 0, 0, None, False
        for place in (place for chunk in self._chunks() for place in chunk):
            cut = looked_at >= SCANNED_RESPONSES or characters >= SCANNED_CHARACTERS
            if cut or len(found) == limit:
                break
            check_wanted()
            text = self._text_of(place)
            if self._text in text:
                found.append(place.n)
            looked_at, characters, last = looked_at + 1, characters + len(text), place
        return found, self._scan(looked_at, last, cut=cut)

    def _text_of(self, place: _Place) -> str:
        try:
            return readmodel.text_of(self._cursor, self._mapper, place.n)
        except StorageError:
            log.exception("[store] a response cannot be searched")
            return ""

    def _scan(self, looked_at: int, last: _Place | None, *, cut: bool) -> Scan:
        reached = None
        if last:
            self._cursor.execute("SELECT response_id FROM responses WHERE n = :n", {"n": last.n})
            reached = self._cursor.fetchone()["response_id"]
        return Scan(responses=looked_at, reached=reached, reached_ms=last and last.created_ms, cut=cut)

    def _chunks(self) -> Iterator[list[_Place]]:
        """All places that the other conditions admit, some at a time."""
        after, size = self._after, _FIRST_CHUNK
        while chunk := self._select(after, size):
            yield chunk
            if len(chunk) < size:
                break
            after, size = chunk[-1], min(2 * size, _LARGEST_CHUNK)

    def _place_after(self) -> _Place:
        statement = """
            SELECT created_ms, n FROM responses
            WHERE response_id = :after AND coalesce(owner = :owner, TRUE)
        """
        self._cursor.execute(statement, {"after": self._wanted.after, "owner": self._wanted.owner})
        row = self._cursor.fetchone()
        if row is None:
            raise InvalidRequestError(f"Response '{self._wanted.after}' not found.", param="after")
        return _Place(row["created_ms"], row["n"])

    def _leading(self, conditions: list[_Condition]) -> _Condition:
        counts = [(each.met_by(self._cursor, self._parameters), each) for each in conditions]
        rarest, lead = min(counts, key=lambda pair: pair[0], default=(NARROW, _ALL))
        if rarest < NARROW:
            return lead
        return next((each for each in conditions if each.order), _ALL)

    def _select(self, after: _Place | None, limit: int) -> list[_Place]:
        """The next places after one, by everything but a common or a short text."""
        lead, direction = self._lead, self._wanted.order
        table = lead.order or "responses"
        holds = [lead.leads or lead.holds, *(each.holds for each in self._checks)]
        parameters = {**self._parameters, "limit": limit}
        for name, comparison, value in (
            ("since_ms", ">=", self._wanted.since_ms),
            ("until_ms", "<", self._wanted.until_ms),
        ):
            if value is not None:
                holds.append(f"{table}.created_ms {comparison} :{name}")
                parameters[name] = value
        if after:
            comparison = "<" if direction == "desc" else ">"
            holds.append(f"({table}.created_ms, {table}.n) {comparison} (:after_ms, :after_n)")
            parameters |= {"after_ms": after.created_ms, "after_n": after.n}
        if self._text_is_common or self._scans:
            # As in the text index: what has ended, and has its content.
            holds.append("NOT responses.expired AND responses.ended_ms IS NOT NULL")
        self._cursor.execute(
            f"SELECT {table}.created_ms, {table}.n FROM {lead.source} WHERE {' AND '.join(holds)} "
            f"ORDER BY {table}.created_ms {direction}, {table}.n {direction} LIMIT :limit",
            parameters,
        )
        return [_Place(*row) for row in self._cursor.fetchall()]

    def _conditions(self) -> Iterator[_Condition]:
        """The conditions of the filter, those first that are met by few as a rule; parameters are noted."""
        wanted = self._wanted
        if wanted.chain is not None:
            yield self._equal("chain", self._chain_of(wanted.chain), "responses_of_chain")
        if wanted.replay_of is not None:
            yield self._equal("replay_of", wanted.replay_of, "replays")
        if wanted.reason is not None:
            yield self._equal("reason", wanted.reason, "responses_of_reason")
        if wanted.tool is not None:
            yield self._listed("response_tools", {"name": wanted.tool})
        for key, value in wanted.metadata.items():
            yield self._listed("response_metadata", {"key": key, "value": value})
        for column in ("owner", "model", "surface", "status"):
            if (value := getattr(wanted, column)) is not None:
                yield self._equal(column, value, f"responses_of_{column}")
        if wanted.state is not None:
            yield self._in_state(wanted.state)
        if wanted.min_latency_ms is not None:
            measure = "responses.ended_ms - responses.created_ms"
            yield self._at_least(measure, wanted.min_latency_ms, "responses_by_latency")
        if wanted.min_tokens is not None:
            measure = "responses.input_tokens + responses.output_tokens"
            yield self._at_least(measure, wanted.min_tokens, "responses_by_tokens")

    def _chain_of(self, response_id: str) -> str:
        """The chain a response belongs to; one that is not there may still be the oldest of a chain."""
        self._cursor.execute("SELECT chain FROM responses WHERE response_id = :id", {"id": response_id})
        row = self._cursor.fetchone()
        return str(row["chain"]) if row else response_id

    def _equal(self, column: str, value: str, index: str) -> _Condition:
        return _Condition(f"responses.{column} = {self._parameter(value)}", f"responses INDEXED BY {index}")

    def _in_state(self, state: str) -> _Condition:
        statuses = [self._parameter(status) for status in _STATUSES_OF_STATE.get(state, ())]
        source = "responses INDEXED BY responses_of_status"
        # Several runs of the index, each in order, are in none.
        order = "responses" if len(statuses) == 1 else None
        return _Condition(f"responses.status IN ({', '.join(statuses)})", source, order=order)

    def _at_least(self, measure: str, value: int, index: str) -> _Condition:
        holds = f"responses.ended_ms IS NOT NULL AND {measure} >= {self._parameter(value)}"
        return _Condition(holds, f"responses INDEXED BY {index}", order=None)

    def _listed(self, table: str, columns: dict[str, str]) -> _Condition:
        """That a response is in a table of its own, under these columns."""
        places = {name: self._parameter(value) for name, value in columns.items()}
        leads = " AND ".join(f"lead.{name} = {place}" for name, place in places.items())
        holds = " AND ".join(f"{table}.{name} = {place}" for name, place in places.items())
        same = f"{table}.created_ms = responses.created_ms AND {table}.n = responses.n"
        return _Condition(
            f"EXISTS (SELECT 1 FROM {table} WHERE {holds} AND {same})",
            f"{table} AS lead CROSS JOIN responses ON responses.n = lead.n",
            leads,
            "lead",
        )

    def _among(self, numbers: list[int]) -> _Condition:
        listed = f"(SELECT value FROM json_each({self._parameter(json.dumps(numbers))}))"
        return _Condition(f"responses.n IN {listed} AND NOT responses.expired", "responses", order=None)

    def _parameter(self, value: str | int) -> str:
        """Note a value and return the name it has in a statement."""
        name = f"p{len(self._parameters)}"
        self._parameters[name] = value
        return f":{name}"
