"""The response object of the API, as a reading of a response's state (D-03).

Every field that the Open Responses schema requires is there, and those it forbids to be null never are.
"""

from collections.abc import Iterable
from typing import Any, assert_never

from turnlog.domain.events import ResponseCreated, TurnCommitted, TurnFailed
from turnlog.domain.items import (
    CallItem,
    CustomCallItem,
    FunctionCallItem,
    Item,
    Logprob,
    MessageItem,
    ReasoningItem,
)
from turnlog.domain.response import Response, api_status
from turnlog.domain.usage import Timing, Usage

Json = dict[str, Any]

_SERVER_ERRORS = ("error", "finish_reason_error", "stream_exhausted")


def response_object(response: Response, expires_at: int | None = None) -> Json:
    """The response as `GET /v1/responses/{id}` shows it, in any state.

    Args:
        expires_at: Unix time in seconds. It moves as the conversation goes on (D-37), so it is in no frame:
            a stream read again has the same bytes.
    """
    result = result_fields(response) | echoed_fields(response.created)
    if expires_at is not None:
        result["expires_at"] = expires_at
    return result


def result_fields(response: Response) -> Json:
    """The fields of the response object that change as the turn goes on; `echoed_fields` follow them."""
    items = response.items
    if response.ended is None:
        items = [*items, *(entry.so_far() for entry in response.output.open_entries)]
    output = [item_object(item) for item in items]
    result = _result(response.created, response.ended, api_status(response), output)
    details, started = result["incomplete_details"], response.started
    if response.created.wire_version > 1 and started and details == {"reason": "max_output_tokens"}:
        details["limit"] = started.output_limit
    return result


def opening_fields(created: ResponseCreated, status: str = "in_progress") -> Json:
    """The same fields as the stream's opening frames show them: nothing in it yet (R-263)."""
    return _result(created, None, status, [])


def _result(
    created: ResponseCreated, ended: TurnCommitted | TurnFailed | None, status: str, output: list[Json]
) -> Json:
    outcome = None if is_cancelled(created, ended) else ended
    return {
        "id": created.response_id,
        "object": "response",
        "created_at": created.at_ms // 1000,
        "completed_at": ended.at_ms // 1000 if isinstance(ended, TurnCommitted) else None,
        "status": status,
        "error": error_object(outcome) if isinstance(outcome, TurnFailed) else None,
        "incomplete_details": _incomplete_details(outcome),
        "model": created.model,
        "output": output,
        "output_text": "".join(part["text"] for item in output for part in item.get("content", ())),
        "usage": usage_object(ended.usage, ended.timing) if ended else usage_object(Usage(), Timing()),
    }


def echoed_fields(created: ResponseCreated) -> Json:
    """The fields that repeat the request, the same in every object and frame of a response."""
    return {
        "instructions": created.instructions,
        "previous_response_id": created.previous_response_id,
        "temperature": created.sampling.temperature,
        "top_p": created.sampling.top_p,
        "presence_penalty": created.sampling.presence_penalty,
        "frequency_penalty": created.sampling.frequency_penalty,
        "top_logprobs": created.sampling.top_logprobs or 0,
        "max_output_tokens": created.max_output_tokens,
        "max_tool_calls": created.max_tool_calls,
        "tools": list(created.tools),
        "tool_choice": created.tool_choice,
        "parallel_tool_calls": created.parallel_tool_calls,
        "reasoning": created.reasoning,
        "text": created.text or {"format": {"type": "text"}},
        "truncation": created.truncation,
        "store": created.store,
        "background": created.background,
        "service_tier": created.service_tier,
        "metadata": created.metadata,
        "safety_identifier": created.safety_identifier,
        "prompt_cache_key": created.prompt_cache_key,
        **_extra_sampling(created),
        # No field of the API: only what was asked for as a replay has it.
        **({"replay_of": created.replay_of} if created.replay_of else {}),
    }


def _extra_sampling(created: ResponseCreated) -> Json:
    """How tokens were drawn beyond what the API knows; fields that are off are left out."""
    if created.wire_version < 2:
        return {}
    off = {"top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
    return {name: value for name in off if (value := getattr(created.sampling, name)) != off[name]}


def item_object(item: Item, *, listed: bool = True) -> Json:
    """An output item. A message that is not listed shows no content (R-286)."""
    match item:
        case MessageItem(id=item_id, status=status, text=text, logprobs=logprobs):
            # An unfinished item that never got a text has no part yet.
            has_part = listed and (text or status == "completed")
            content = [text_part(text, logprobs)] if has_part else []
            return {
                "id": item_id,
                "type": "message",
                "status": status,
                "role": "assistant",
                "content": content,
            }
        case ReasoningItem(id=item_id, text=text):
            return {"id": item_id, "type": "reasoning", "summary": [summary_part(text)] if text else []}
        case FunctionCallItem():
            return _call_object(item, "function_call") | {"arguments": item.arguments}
        case CustomCallItem():
            return _call_object(item, "custom_tool_call") | {"input": item.input}
        case _:
            assert_never(item)


def _call_object(item: CallItem, kind: str) -> Json:
    call: Json = {
        "id": item.id,
        "type": kind,
        "status": item.status,
        "call_id": item.call_id,
        "name": item.name,
    }
    return call | {"namespace": item.namespace} if item.namespace else call


def text_part(text: str, logprobs: Iterable[Logprob] = ()) -> Json:
    """The content part of a message."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprob_objects(logprobs)}


def logprob_objects(logprobs: Iterable[Logprob]) -> list[Json]:
    """Log probabilities of tokens, each with the likeliest tokens in its place."""
    return [
        _token(each.token, each.logprob, each.raw)
        | {
            "top_logprobs": [
                _token(token, logprob, raw)
                for (token, logprob), raw in zip(
                    each.top, each.top_raw or (b"",) * len(each.top), strict=True
                )
            ]
        }
        for each in logprobs
    ]


def _token(token: str, logprob: float, raw: bytes) -> Json:
    return {"token": token, "logprob": logprob, "bytes": list(raw or token.encode())}


def summary_part(text: str) -> Json:
    """The summary part of a reasoning item."""
    return {"type": "summary_text", "text": text}


def is_cancelled(created: ResponseCreated, ended: TurnCommitted | TurnFailed | None) -> bool:
    """Whether the turn ended as its owner asked, which is no failure; in wire version 1 it was one (D-02)."""
    return created.wire_version > 1 and isinstance(ended, TurnFailed) and ended.reason == "cancelled"


def error_object(failed: TurnFailed) -> Json:
    """Why the turn failed: a code clients can switch on and a sentence for people (D-05)."""
    code = "server_error" if failed.reason in _SERVER_ERRORS else failed.reason
    return {"code": code, "message": failed.message}


def _incomplete_details(ended: TurnCommitted | TurnFailed | None) -> Json | None:
    match ended:
        case TurnCommitted(status="incomplete", reason=reason):
            return {"reason": reason or "max_output_tokens"}
        case TurnFailed(reason=reason):
            return {"reason": reason}
        case _:
            return None


def usage_object(usage: Usage, timing: Timing) -> Json:
    """Token counts with both details (R-341, D-03) and the timing extensions that are known (R-343)."""
    cached = usage.cached_tokens or 0
    counts: Json = {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.total_tokens,
    }
    return counts | {name: value for name, value in _extensions(usage, timing) if value is not None}


def _extensions(usage: Usage, timing: Timing) -> list[tuple[str, float | None]]:
    first, decode = timing.first_token_ms, timing.decode_tokens_per_s
    measured = first is not None
    cached = min(usage.cached_tokens or 0, usage.input_tokens)
    return [
        ("time_to_first_token_ms", first),
        ("server_time_to_first_token_ms", first),
        ("server_total_time_to_first_token_ms", _sum(first, timing.pre_inference_ms)),
        ("prefill_tokens_per_second", timing.prefill_tokens_per_s),
        ("server_prefill_tokens_per_second", timing.prefill_tokens_per_s),
        ("decode_tokens_per_second", decode),
        ("server_decode_tokens_per_second", decode),
        ("server_inference_elapsed_ms", _elapsed_ms(first, decode, usage.output_tokens)),
        ("prefill_input_tokens", usage.input_tokens - cached if measured else None),
        ("cached_prefix_tokens", cached or None),
        ("server_queue_ms", timing.queue_ms),
        ("server_pre_inference_ms", timing.pre_inference_ms),
    ]


def _sum(left: float | None, right: float | None) -> float | None:
    return None if left is None or right is None else left + right


def _elapsed_ms(first_ms: float | None, decode_rate: float | None, output_tokens: int) -> float | None:
    if first_ms is None or output_tokens <= 1:
        return first_ms
    return first_ms + (output_tokens - 1) / decode_rate * 1000 if decode_rate else None
