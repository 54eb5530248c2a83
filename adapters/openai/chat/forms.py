"""The forms of a Chat Completions body; read as those of `openai.forms` are."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from turnlog.adapters.openai.forms import (
    LENIENT,
    MAX_SEED,
    METADATA,
    TOOL_CHOICE,
    Effort,
    JsonObjectFormat,
    LenientName,
    Name,
    OutputTokens,
    Part,
    Penalty,
    RepetitionPenalty,
    RequiredName,
    Share,
    Stops,
    Temperature,
    TextFormat,
    TopK,
    TopLogprobs,
    Verbosity,
    absent_if,
    entries,
    unsupported,
)

# ── messages ──────────────────────────────────────────────────────────────────────────────────────


class CalledFunction(Struct):
    """The function of a call; `arguments` is JSON text."""

    name: Name
    arguments: str = ""


class CalledTool(Struct):
    """The custom tool of a call."""

    name: Name
    input: str = ""


class ToolCall(Struct):
    """A call of an earlier answer. Its `type` says which of the other fields it has."""

    id: Name | None = None
    type: Literal["function", "custom"] = "function"
    function: CalledFunction | None = None
    custom: CalledTool | None = None


class ChatMessage(Struct, kw_only=True, gc=False):
    """A message of any role. `name` is bounded; no chat template has a place for it."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[Part] | None = None
    name: LenientName = None
    refusal: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: Name | None = None


# ── the form of the answer ────────────────────────────────────────────────────────────────────────


class JsonSchema(Struct):
    """A schema with its name."""

    name: Name = "response"
    schema: dict[str, Any] = {}
    description: str | None = None
    strict: bool | None = None


class NestedSchemaFormat(Struct, tag="json_schema"):
    """JSON that follows a schema."""

    json_schema: JsonSchema


class ChatStreamOptions(Struct):
    """How a stream is sent."""

    include_usage: bool | None = None


# ── the body ──────────────────────────────────────────────────────────────────────────────────────


class ChatBody(Struct, kw_only=True):
    """The body of `POST /v1/chat/completions`.

    `max_completion_tokens` wins over `max_tokens`, `safety_identifier` over `user`.
    """

    model: Annotated[RequiredName, absent_if(("", 0, False))]
    messages: Annotated[list[Any], entries("input_items", ChatMessage)]
    max_completion_tokens: OutputTokens | None = None
    max_tokens: OutputTokens | None = None
    n: Annotated[None, absent_if((1,)), unsupported("send one request for each answer")] = None
    metadata: Annotated[dict[str, Any], METADATA] | None = None
    tools: Annotated[list[Any], entries("tools")] | None = None
    tool_choice: Literal["none", "auto", "required"] | Annotated[dict[str, Any], TOOL_CHOICE] | None = None
    parallel_tool_calls: bool | None = None
    functions: Annotated[None, absent_if(([],)), unsupported("use tools")] = None
    function_call: Annotated[None, unsupported("use tool_choice")] = None
    response_format: TextFormat | JsonObjectFormat | NestedSchemaFormat | None = None
    stream: bool | None = None
    stream_options: ChatStreamOptions | None = None
    store: bool | None = None
    temperature: Temperature | None = None
    top_p: Share | None = None
    seed: Annotated[int, Meta(ge=-(2**63), extra_json_schema={"maximum": MAX_SEED})] | None = None
    top_k: TopK | None = None
    min_p: Share | None = None
    repetition_penalty: RepetitionPenalty | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    stop: Stops | None = None
    logprobs: bool | None = None
    top_logprobs: TopLogprobs | None = None
    reasoning_effort: Effort | None = None
    verbosity: Verbosity | None = None
    prompt_cache_key: Name | None = None
    cache_salt: Name | None = None
    safety_identifier: Name | None = None
    user: Annotated[Name | None, LENIENT] = None
    logit_bias: Annotated[None, absent_if(({},)), unsupported("send the request without it")] = None
    modalities: Annotated[
        None, absent_if((["text"],)), unsupported("send the request without it; answers are text")
    ] = None
    audio: Annotated[None, unsupported("send the request without it; answers are text")] = None
    prediction: Annotated[None, unsupported("send the request without it")] = None
    web_search_options: Annotated[None, unsupported("send the request without it")] = None


class CompletionUpdate(Struct, frozen=True):
    """What of a stored completion can be changed: its metadata, as a whole."""

    metadata: Annotated[dict[str, Any], METADATA] | None
