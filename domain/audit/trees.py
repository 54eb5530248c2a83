"""A conversation as a tree: which response continues which, which were tried again, forked or replayed."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import Struct

from turnlog.domain.audit.rows import AuditRow

Kind = Literal["start", "continuation", "fork", "attempt", "replay"]


class Node(Struct, frozen=True):
    """A response in its conversation.

    `depth` is how many branches lie between it and the main line, which has 0. A `fork` goes on from where
    something else went on before; an `attempt` tried to, and failed.
    """

    row: AuditRow
    kind: Kind
    depth: int


def lay_out(rows: Iterable[AuditRow]) -> list[Node]:
    """The responses of a conversation in the order to read them.

    What branches off after a response comes before what its line goes on with; replays of a response are
    among its branches. A response whose predecessor is not among the rows begins a line.
    """
    known = {row.response_id: row for row in rows}
    after: defaultdict[str | None, list[AuditRow]] = defaultdict(list)
    for row in sorted(known.values(), key=lambda row: row.created_ms):
        continued = row.previous_response_id or row.follows
        before = row.replay_of if row.replay_of in known else continued
        after[before if before in known else None].append(row)
    nodes: list[Node] = []
    # A stack, not recursion: a conversation may have thousands of turns.
    waiting = _branches(after[None], depth=0, starts=True)
    while waiting:
        node = waiting.pop()
        nodes.append(node)
        waiting += _branches(after[node.row.response_id], depth=node.depth, starts=False)
    return nodes


def _branches(rows: Sequence[AuditRow], *, depth: int, starts: bool) -> list[Node]:
    """What follows one response, the line that goes on first."""
    asked = [row for row in rows if not row.replay_of]
    line = next((row for row in asked if row.reason is None), asked[-1] if asked else None)
    nodes = [Node(line, "start" if starts else "continuation", depth)] if line else []
    return nodes + [Node(row, _aside(row), depth + 1) for row in reversed(rows) if row is not line]


def _aside(row: AuditRow) -> Kind:
    if row.replay_of:
        return "replay"
    return "fork" if row.reason is None else "attempt"
