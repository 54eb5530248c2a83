"""The audit surface as JSON: rows, turns and conversations; an extension of turnlog's to the API.

Times are ISO 8601 in UTC. `content` says whether what was said is `shown`, `withheld` from whoever asks, or
`expired`; what is not shown is null, never empty.
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import msgspec
from msgspec.structs import asdict

from turnlog.adapters.openai.events import event_object, time_text
from turnlog.adapters.openai.response import response_object
from turnlog.domain.audit.compare import FORM, Comparison
from turnlog.domain.audit.failures import failure
from turnlog.domain.audit.rows import Scan
from turnlog.domain.audit.usage import UsageSum
from turnlog.domain.audit.views import Conversation, Line, PageView, RowView, TurnView, state_times
from turnlog.domain.events import Recorded, ResponseCreated
from turnlog.domain.messages import Message

Json = dict[str, Any]

_ASKED = (
    "instructions",
    *FORM,
    "prompt_cache_key",
    "safety_identifier",
    "service_tier",
    "metadata",
    "retry_keys",
)


def row_object(view: RowView) -> Json:
    """What a list shows of a response. The names of tools that were called are content."""
    row = view.row
    return {
        "id": row.response_id,
        "object": "audit.response",
        "owner": row.owner,
        "model": row.model,
        "state": row.state,
        "status": row.status,
        "reason": row.reason,
        "previous_response_id": row.previous_response_id,
        "chain": row.chain,
        "replay_of": row.replay_of,
        "follows": row.follows,
        "surface": row.surface,
        "created": time_text(row.created_ms),
        "started": time_text(row.started_ms),
        "ended": time_text(row.ended_ms),
        "expires": time_text(row.expires_at * 1000),
        "latency_ms": row.latency_ms,
        "usage": {**asdict(row.usage), "total_tokens": row.usage.total_tokens} if row.usage else None,
        "tools": list(row.tools) if view.content == "shown" else None,
        "events": row.last_version,
        "content": view.content,
    }


def usage_row(row: UsageSum) -> Json:
    """One sum of turns and tokens."""
    counts = asdict(row)
    return {"object": "audit.usage", **counts.pop("by"), **counts, "total_tokens": row.total_tokens}


def found_object(found: PageView) -> Json:
    """A page of responses that were looked for; the next one is that after `last_id`.

    `scan` says how far the texts themselves were read, null where an index served.
    """
    page, rows = found.page, [row_object(each) for each in found.rows]
    scan = page.scan and scan_object(page.scan)
    return page_object(rows, has_more=page.has_more) | {"last_id": page.last_id, "scan": scan}


def scan_object(scan: Scan) -> Json:
    """How far a search came that reads the texts themselves: how many responses, and down to which."""
    return {
        "object": "audit.scan",
        "responses": scan.responses,
        "reached": time_text(scan.reached_ms),
        "reached_id": scan.reached,
        "complete": not scan.cut,
    }


def page_object(rows: Sequence[Json], *, has_more: bool) -> Json:
    """A page of rows, nodes or the like, each with an id."""
    return {
        "object": "list",
        "data": list(rows),
        "has_more": has_more,
        "last_id": rows[-1]["id"] if rows else None,
    }


# ── a turn ────────────────────────────────────────────────────────────────────────────────────────


def turn_object(view: TurnView) -> Json:
    """The row of a turn with its state times, what was asked, how it ran and what it answered."""
    shown = view.content == "shown"
    response, failed = view.response, failure(view.response)
    started, ended = response.started, response.ended
    return {
        **row_object(view),
        "object": "audit.turn",
        "times": {state: time_text(at_ms) for state, at_ms in state_times(response, view.events).items()},
        "request": request_object(response.created, shown=shown),
        "response": response_object(response, view.row.expires_at) if shown else None,
        "engine": {
            "instance_id": response.created.instance_id,
            "boot_id": response.created.boot_id,
            "model_fingerprint": started.model_fingerprint if started else None,
            "tokenizer_fingerprint": started.tokenizer_fingerprint if started else None,
            "cache_class": started.cache_class if started else None,
            "output_budget_tokens": started.output_budget_tokens if started else None,
            "alone": ended.alone if ended else None,
        },
        "timing": asdict(ended.timing) if ended else None,
        # A turn that runs is told as far as it is stored.
        "stored": {"events": len(view.events), "ended": ended is not None},
        "prompt": _prompt_object(view),
        "seen": view.seen
        and {
            "messages": [message_object(message) for message in view.seen.messages],
            "left_out_messages": view.seen.left_out,
            "missing_previous_response_id": view.seen.missing,
        },
        "failure": failed and asdict(failed),
        "attempts": [row_object(each) for each in view.attempts],
        "replays": [row_object(each) for each in view.replays],
    }


def request_object(created: ResponseCreated, *, shown: bool) -> Json:
    """What was asked; without content, how it was asked. `instructions` are those in force (R-149)."""
    sampling = asdict(created.sampling)
    asked: Json = {name: getattr(created, name) if shown else None for name in _ASKED}
    return {
        "input": [message_object(message) for message in created.input] if shown else None,
        **asked,
        "sampling": sampling if shown else {**sampling, "stop": None},
        "max_output_tokens": created.max_output_tokens,
        "store": created.store,
    }


def message_object(message: Message) -> Json:
    """A message as the model reads it. A picture is shown by kind, size and hash; the log has its bytes."""
    result: Json = msgspec.to_builtins(message)
    if message.images:
        result["images"] = [
            {
                "media_type": image.media_type,
                "bytes": len(image.content),
                "sha256": sha256(image.content).hexdigest(),
            }
            for image in message.images
        ]
    return result


def _prompt_object(view: TurnView) -> Json | None:
    """The prompt's size and hash, and its ids if they were asked for; null if the engine never got it."""
    if view.response.started is None:
        return None
    prompt, ids = view.response.started.prompt, view.prompt_ids
    known = {"tokens": prompt.tokens, "sha256": prompt.digest or None}
    return {**known, "ids": ids.ids, "ids_problem": ids.problem} if ids else known


# ── around it ─────────────────────────────────────────────────────────────────────────────────────


def timeline_object(view: RowView, events: Sequence[Recorded]) -> Json:
    """The stored events of a response, each with the milliseconds since the first."""
    return {
        "object": "list",
        "id": view.row.response_id,
        "content": view.content,
        "data": [
            {**event_object(each), "after_ms": each.event.at_ms - events[0].event.at_ms} for each in events
        ],
    }


def conversation_object(conversation: Conversation) -> Json:
    """A conversation as a list in the order to read it, from which `depth` and `kind` make a tree."""
    return page_object([line_object(line) for line in conversation.lines], has_more=conversation.cut)


def line_object(line: Line) -> Json:
    """A response in its conversation; `asked` and `answered` are null if they are not shown."""
    exchange = asdict(line.exchange) if line.exchange else {"asked": None, "answered": None}
    return {**row_object(line), "kind": line.kind, "depth": line.depth, **exchange}


def comparison_object(comparison: Comparison) -> Json:
    """Two turns beside each other."""
    return {"object": "audit.comparison", **msgspec.to_builtins(comparison)}
