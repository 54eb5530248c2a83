"""The completion object, a reading of a committed response as `response_object` is another."""

from collections.abc import Iterable
from typing import Any, Literal

from turnlog.adapters.openai.response import logprob_objects
from turnlog.domain.events import ResponseCreated, TurnCommitted
from turnlog.domain.ids import completion_id
from turnlog.domain.items import (
    CallItem,
    CustomCallItem,
    FunctionCallItem,
    Logprob,
    MessageItem,
    ReasoningItem,
)
from turnlog.domain.response import Response
from turnlog.domain.tools import engine_name
from turnlog.domain.usage import Usage

Json = dict[str, Any]


def completion_object(response: Response) -> Json:
    """The completion of a committed turn."""
    created, started, ended = response.created, response.started, response.ended
    assert started and isinstance(ended, TurnCommitted), "only a committed turn is shown as a completion"
    messages = [item for item in response.items if isinstance(item, MessageItem)]
    logprobs = [each for item in messages for each in item.logprobs]
    asked = created.sampling.top_logprobs is not None
    return {
        **head("chat.completion", created, started.model_fingerprint),
        "choices": [
            {
                "index": 0,
                "message": message_object(response),
                "logprobs": logprobs_object(logprobs) if asked else None,
                "finish_reason": finish_reason(response),
            }
        ],
        "usage": usage_object(ended.usage),
        "metadata": created.metadata,
    }


def head(kind: str, created: ResponseCreated, fingerprint: str | None) -> Json:
    """What a completion and each of its chunks begin with.

    Args:
        fingerprint: the model's; None until the turn has started.
    """
    return {
        "id": completion_id(created.response_id),
        "object": kind,
        "created": created.at_ms // 1000,
        "model": created.model,
        "service_tier": created.service_tier,
        "system_fingerprint": fingerprint and f"fp_{fingerprint[:16]}",
    }


def message_object(response: Response) -> Json:
    """The answer as a message. Its content is null if the model made calls and said nothing."""
    items = response.items
    calls = [item for item in items if isinstance(item, FunctionCallItem | CustomCallItem)]
    text = "".join(item.text for item in items if isinstance(item, MessageItem))
    reasoning = "".join(item.text for item in items if isinstance(item, ReasoningItem))
    return {
        "role": "assistant",
        "content": text or (None if calls else ""),
        "refusal": None,
        **({"reasoning_content": reasoning} if reasoning else {}),
        **({"tool_calls": [call_object(call) for call in calls]} if calls else {}),
    }


def call_object(call: CallItem) -> Json:
    """A call, its fields under its type."""
    name = engine_name(call.name, call.namespace)
    if isinstance(call, CustomCallItem):
        return {"id": call.call_id, "type": "custom", "custom": {"name": name, "input": call.input}}
    return {"id": call.call_id, "type": "function", "function": {"name": name, "arguments": call.arguments}}


def logprobs_object(logprobs: Iterable[Logprob]) -> Json:
    """The log probabilities of a choice."""
    return {"content": logprob_objects(logprobs), "refusal": None}


def finish_reason(response: Response) -> Literal["stop", "length", "tool_calls"]:
    """Why the model stopped."""
    ended = response.ended
    if isinstance(ended, TurnCommitted) and ended.status == "incomplete":
        return "length"
    called = any(isinstance(item, FunctionCallItem | CustomCallItem) for item in response.items)
    return "tool_calls" if called else "stop"


def usage_object(usage: Usage) -> Json:
    """Token counts with both details."""
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens or 0},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }
