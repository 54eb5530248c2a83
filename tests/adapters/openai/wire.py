"""Reads streams as clients do, and holds them against the Open Responses schema and the SDK's types."""

import json
from functools import cache
from typing import Any

import openresponses_types as schema
from pydantic import BaseModel, TypeAdapter

EVENT_MODELS: dict[str, type[BaseModel]] = {
    "response.created": schema.ResponseCreatedStreamingEvent,
    "response.queued": schema.ResponseQueuedStreamingEvent,
    "response.in_progress": schema.ResponseInProgressStreamingEvent,
    "response.completed": schema.ResponseCompletedStreamingEvent,
    "response.incomplete": schema.ResponseIncompleteStreamingEvent,
    "response.failed": schema.ResponseFailedStreamingEvent,
    "response.output_item.added": schema.ResponseOutputItemAddedStreamingEvent,
    "response.output_item.done": schema.ResponseOutputItemDoneStreamingEvent,
    "response.content_part.added": schema.ResponseContentPartAddedStreamingEvent,
    "response.content_part.done": schema.ResponseContentPartDoneStreamingEvent,
    "response.output_text.delta": schema.ResponseOutputTextDeltaStreamingEvent,
    "response.output_text.done": schema.ResponseOutputTextDoneStreamingEvent,
    "response.reasoning_summary_part.added": schema.ResponseReasoningSummaryPartAddedStreamingEvent,
    "response.reasoning_summary_part.done": schema.ResponseReasoningSummaryPartDoneStreamingEvent,
    "response.reasoning_summary_text.delta": schema.ResponseReasoningSummaryDeltaStreamingEvent,
    "response.reasoning_summary_text.done": schema.ResponseReasoningSummaryDoneStreamingEvent,
    "response.function_call_arguments.delta": schema.ResponseFunctionCallArgumentsDeltaStreamingEvent,
    "response.function_call_arguments.done": schema.ResponseFunctionCallArgumentsDoneStreamingEvent,
    "error": schema.ErrorStreamingEvent,
}

Json = dict[str, Any]


def read_stream(body: bytes) -> list[Json]:
    """The data of each frame, after checking that the stream is well formed and passes the schema.

    Every frame is one `event:` line and one `data:` line whose `type` says the same; numbers rise by one
    from 0; the last event is a terminal one and `[DONE]` follows it.
    """
    *told, done, rest = body.decode().split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    events = [_read_frame(frame) for frame in told]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[-1]["type"] in ("response.completed", "response.incomplete", "response.failed")
    return events


def _read_frame(frame: str) -> Json:
    name, data = frame.split("\n")
    event: Json = json.loads(data.removeprefix("data: "))
    assert name == f"event: {event['type']}"
    if _has_other_tools(event):
        # The SDK knows none of our failure reasons.
        if event["type"] != "response.failed":
            _sdk_event().validate_python(event)
    else:
        EVENT_MODELS[event["type"]].model_validate(event)
    return event


def _has_other_tools(event: Json) -> bool:
    """Whether the event is of tools that the Open Responses schema has no words for."""
    kind = event.get("item", {}).get("type", "message")
    named = "custom_tool_call" in event["type"] or kind not in _SCHEMA_KINDS
    return named or ("response" in event and not _fits_the_schema(event["response"]))


def _fits_the_schema(response: Json) -> bool:
    kinds = {item["type"] for item in response["output"]} | {tool["type"] for tool in response["tools"]}
    return kinds <= _SCHEMA_KINDS


_SCHEMA_KINDS = {"message", "reasoning", "function_call", "function"}


def check_response(body: Json) -> Json:
    """The response object, after checking it against the schema and D-03's fields that are never null.

    Those that did not fail must fit the SDK's types too; it knows none of our failure reasons.
    """
    if _fits_the_schema(body):
        schema.ResponseResource.model_validate(body)
    if body["status"] not in ("failed", "cancelled"):
        _sdk_response().validate_python(body)
    never_null = (
        "temperature top_p presence_penalty frequency_penalty top_logprobs tool_choice tools text truncation"
        " store background service_tier created_at output output_text usage"
    )
    assert [name for name in never_null.split() if body[name] is None] == []
    assert isinstance(body["created_at"], int)
    assert body["usage"].keys() >= {"input_tokens_details", "output_tokens_details"}
    return body


@cache
def _sdk_event() -> TypeAdapter[Any]:
    from openai.types.responses import ResponseStreamEvent

    return TypeAdapter(ResponseStreamEvent)


@cache
def _sdk_response() -> TypeAdapter[Any]:
    # Late: importing the SDK takes a second.
    from openai.types.responses import Response

    return TypeAdapter(Response)
