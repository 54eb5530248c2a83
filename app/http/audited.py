"""What the auditor's use cases found, as JSON: for the routes and for the command line."""

from typing import Any

from turnlog.adapters.openai.audit import (
    failure_object,
    node_object,
    page_object,
    prompt_ids_object,
    prompt_object,
    row_object,
    seen_object,
    turn_object,
)
from turnlog.app.audit.reading import Conversation, SeenRow, Turn
from turnlog.domain.audit.failures import FAILURES
from turnlog.domain.events import TurnFailed

Json = dict[str, Any]


def told_turn(turn: Turn, *, with_prompt_ids: bool) -> Json:
    """A turn as JSON."""
    ended = turn.response.ended
    prompt = prompt_object(turn.response)
    if prompt and with_prompt_ids:
        prompt |= prompt_ids_object(turn.prompt_ids, turn.prompt_problem)
    return {
        **turn_object(told_row(SeenRow(turn.row, turn.content)), turn.response, turn.events),
        "prompt": prompt,
        "seen": turn.seen
        and seen_object(turn.seen.messages, left_out=turn.seen.left_out, missing=turn.seen.missing),
        "failure": failure_object(ended, *FAILURES[ended.reason]) if isinstance(ended, TurnFailed) else None,
        "attempts": [told_row(each) for each in turn.attempts],
        "replays": [told_row(each) for each in turn.replays],
    }


def told_conversation(conversation: Conversation) -> Json:
    """A conversation as JSON: a list in the order to read it, from which `depth` and `kind` make a tree."""
    nodes = [
        node_object(
            row_object(line.node.row, line.content),
            line.node.kind,
            line.node.depth,
            (line.said.asked, line.said.answered) if line.said else None,
        )
        for line in conversation.lines
    ]
    return page_object(nodes, has_more=conversation.cut)


def told_row(seen: SeenRow) -> Json:
    """A row as JSON."""
    return row_object(seen.row, seen.content)
