"""The audit surface as JSON: rows, turns and conversations; an extension of turnlog's to the API.

Times are ISO 8601 in UTC. `content` says whether what was said is `shown`, `withheld` from whoever asks, or
`expired`; what is not shown is null, never empty.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import msgspec
from msgspec.structs import asdict

from turnlog.adapters.openai.events import event_object
from turnlog.adapters.openai.response import response_object
from turnlog.domain.audit.rows import AuditRow
from turnlog.domain.events import (
    ItemExtended,
    ItemOpened,
    ReasoningDropped,
    Recorded,
    ResponseCreated,
    TurnFailed,
    TurnPersisted,
)
from turnlog.domain.messages import Message
from turnlog.domain.response import Response
from turnlog.domain.tokens import TokenIds

Json = dict[str, Any]

SHOWN = "shown"

_ASKED = (
    "instructions",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "text",
    "reasoning",
    "truncation",
    "max_tool_calls",
    "prompt_cache_key",
    "safety_identifier",
    "service_tier",
    "metadata",
    "retry_keys",
)


def row_object(row: AuditRow, content: str) -> Json:
    """What a list shows of a response. The names of tools that were called are content."""
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
        "created": time_text(row.created_ms),
        "started": time_text(row.started_ms),
        "ended": time_text(row.ended_ms),
        "expires": time_text(row.expires_at * 1000),
        "latency_ms": row.latency_ms,
        "usage": {**asdict(row.usage), "total_tokens": row.usage.total_tokens} if row.usage else None,
        "tools": list(row.tools) if content == SHOWN else None,
        "events": row.last_version,
        "content": content,
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


def turn_object(row: Json, response: Response, events: Sequence[Recorded]) -> Json:
    """The row of a turn with its state times, what was asked, how it ran and what it answered.

    What was said is null unless the row says that content is shown.
    """
    shown = row["content"] == SHOWN
    started, ended = response.started, response.ended
    return {
        **row,
        "object": "audit.turn",
        "times": state_times(response, events),
        "request": request_object(response.created, shown=shown),
        "response": response_object(response) if shown else None,
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
        "stored": {"events": len(events), "ended": ended is not None},
    }


def state_times(response: Response, events: Iterable[Recorded]) -> Json:
    """When the turn reached each state; null for those it has not reached, or of which that is not known."""
    started, ended = response.started, response.ended
    first_ms = ended.timing.first_token_ms if ended else None
    if started and first_ms is not None:
        first = started.at_ms + round(first_ms)
    else:
        first = _first(events, (ItemOpened, ItemExtended, ReasoningDropped)) or 0
    return {
        "created": time_text(response.created.at_ms),
        "started": time_text(started.at_ms if started else None),
        "first_token": time_text(first or None),
        "ended": time_text(ended.at_ms if ended else None),
        "persisted": time_text(_first(events, (TurnPersisted,))),
    }


def _first(events: Iterable[Recorded], kinds: tuple[type, ...]) -> int | None:
    return next((each.event.at_ms for each in events if isinstance(each.event, kinds)), None)


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
    """A message as the model reads it. Of a picture it tells kind, size and hash; the log has its bytes."""
    told: Json = msgspec.to_builtins(message)
    if message.images:
        told["images"] = [
            {
                "media_type": image.media_type,
                "bytes": len(image.content),
                "sha256": sha256(image.content).hexdigest(),
            }
            for image in message.images
        ]
    return told


def seen_object(messages: Iterable[Message], *, left_out: int, missing: str | None) -> Json:
    """What the model saw; `missing` is the earlier response of the conversation that is gone."""
    return {
        "messages": [message_object(message) for message in messages],
        "left_out_messages": left_out,
        "missing_previous_response_id": missing,
    }


def prompt_object(response: Response) -> Json | None:
    """The prompt's size and hash; null if the turn never reached the engine."""
    if response.started is None:
        return None
    prompt = response.started.prompt
    return {"tokens": prompt.tokens, "sha256": prompt.digest or None}


def prompt_ids_object(ids: TokenIds | None, problem: str | None) -> Json:
    """The prompt's ids, or why they cannot be told."""
    return {"ids": None if ids is None else list(ids), "ids_problem": problem}


def failure_object(failed: TurnFailed, happened: str, advice: str) -> Json:
    """Why a turn failed: the reason, what the engine or the server said, and both in plain words."""
    return {"reason": failed.reason, "message": failed.message, "happened": happened, "advice": advice}


# ── around it ─────────────────────────────────────────────────────────────────────────────────────


def timeline_object(response_id: str, events: Sequence[Recorded], content: str) -> Json:
    """The stored events of a response, each with the milliseconds since the first."""
    return {
        "object": "list",
        "id": response_id,
        "content": content,
        "data": [
            {**event_object(each), "after_ms": each.event.at_ms - events[0].event.at_ms} for each in events
        ],
    }


def node_object(row: Json, kind: str, depth: int, said: tuple[str, str] | None) -> Json:
    """A response in its conversation; `asked` and `answered` are null if they are not told."""
    asked, answered = said or (None, None)
    return {**row, "kind": kind, "depth": depth, "asked": asked, "answered": answered}


def time_text(at_ms: int | None) -> str | None:
    """A time in ISO 8601, UTC, to the millisecond."""
    if at_ms is None:
        return None
    try:
        at = datetime.fromtimestamp(at_ms / 1000, UTC)
    except (ValueError, OverflowError):  # a retention of ten thousand years
        return None
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
