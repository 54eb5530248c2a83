"""The forms of request bodies: the fields a client may send, each with its type and its bounds beside it.

The decoder, the limit check and `GET /openapi.json` read these structs, so a new field is one line here. The
fields of a form stand in the order in which they are checked (R-011). Unknown fields are ignored.

Bounds are in the unit of their keyword: `maxLength` in characters, `maxItems` in entries. A bound that is a
setting stands here by its name in `RequestLimits`.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from turnlog.domain.request import MAX_OUTPUT_TOKENS
from turnlog.domain.retention import RETENTION_RANGE_S

REFERENCE = "#/components/schemas/{name}"

METADATA_PAIRS = 16
METADATA_KEY_CHARACTERS = 64
METADATA_VALUE_CHARACTERS = 512
"""As OpenAI documents them. A value that is not a string counts by its JSON."""

MAX_SEED = 2**64 - 1

LENIENT = Meta(extra={"lenient": True})
"""Marks a field that nothing reads: a value of another type counts as absent (R-020)."""


def absent_if(values: tuple[Any, ...]) -> Meta:
    """Mark a field for which these values count as absent, as null does."""
    return Meta(extra={"absent": values})


def unsupported(instead: str) -> Meta:
    """Mark a field that would change the meaning of the request, so it is refused rather than ignored."""
    return Meta(description=f"Not supported; {instead}.", extra={"instead": instead})


def characters(limit: str) -> Meta:
    """Bound a string by the limit of that name."""
    return Meta(extra_json_schema={"maxLength": limit})


def entries(limit: str, *forms: type[Struct]) -> Meta:
    """Bound a list by the limit of that name. `forms` are those of its entries that turnlog understands."""
    known = {"anyOf": [{"$ref": REFERENCE.format(name=form.__name__)} for form in forms]}
    return Meta(extra_json_schema={"maxItems": limit} | ({"items": known} if forms else {}))


Name = Annotated[str, characters("name_chars")]
RequiredName = Annotated[Name, Meta(min_length=1)]
LenientName = Annotated[Name | None, LENIENT]
StopText = Annotated[str, Meta(min_length=1), characters("stop_chars")]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
OutputTokens = Annotated[int, Meta(ge=1, le=MAX_OUTPUT_TOKENS)]


# ── input items ───────────────────────────────────────────────────────────────────────────────────


class Part(Struct, gc=False):
    """A content part. Its `type` says which of the other fields holds the content."""

    type: Any = None
    text: str | None = None
    refusal: str | None = None
    image_url: Any = None


# An item holds JSON, which has no cycles; the collector need not look at the thousands of a long request.
class Item(Struct, kw_only=True, gc=False):
    """An input item of any type. Its names are bounded even where nothing reads them."""

    role: LenientName = None
    id: LenientName = None
    call_id: LenientName = None
    name: LenientName = None
    namespace: LenientName = None


class MessageItem(Item, tag="message", kw_only=True):
    """A message. Only an assistant's may lack content."""

    role: Literal["user", "assistant", "system", "developer"]
    content: str | list[Part] | None = None


class CallItem(Item, kw_only=True):
    """A tool call of an earlier answer."""

    name: Name
    call_id: Name | None = None
    namespace: Name | None = None


class FunctionCallItem(CallItem, tag="function_call", kw_only=True):
    """A call of a function; `arguments` is JSON text."""

    arguments: str = ""


class CustomToolCallItem(CallItem, tag="custom_tool_call", kw_only=True):
    """A call of a custom tool."""

    input: str = ""


class FunctionCallOutputItem(Item, tag="function_call_output", kw_only=True):
    """The output of a function call."""

    call_id: Name | None = None
    output: str | list[Part] | None = None
    is_error: bool | None = None


class CustomToolCallOutputItem(FunctionCallOutputItem, tag="custom_tool_call_output"):
    """The output of a custom tool call."""


class ReasoningItem(Item, tag="reasoning", kw_only=True):
    """Reasoning of an earlier answer, from the summary or else from the content."""

    summary: list[Any] | None = None
    content: list[Any] | None = None


class ItemReferenceItem(Item, tag="item_reference", kw_only=True):
    """A reference to a stored output item."""

    id: RequiredName


class AdditionalToolsItem(Item, tag="additional_tools", kw_only=True):
    """More tools for the turn."""

    tools: list[Any] = []


class UnknownItem(Item, kw_only=True):
    """An item of another type: its text is read, if it has any."""

    type: Name
    content: Any = None


ITEMS = (
    MessageItem,
    FunctionCallItem,
    CustomToolCallItem,
    FunctionCallOutputItem,
    CustomToolCallOutputItem,
    ReasoningItem,
    ItemReferenceItem,
    AdditionalToolsItem,
)


# ── tools ─────────────────────────────────────────────────────────────────────────────────────────


class FunctionTool(Struct, tag="function"):
    """A function, with every field that the response must echo."""

    name: RequiredName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class CustomTool(Struct, tag="custom"):
    """A freeform tool: it takes a string."""

    name: RequiredName


class NamespaceTool(Struct, tag="namespace"):
    """A group of tools."""

    name: RequiredName
    tools: list[Any] | None = None


class HostedTool(Struct):
    """A tool of another type: echoed, not offered to the model (D-07)."""

    type: Name
    name: Name | None = None


TOOLS = (FunctionTool, CustomTool, NamespaceTool)
Tool = FunctionTool | CustomTool | NamespaceTool | HostedTool

TOOL_CHOICE = Meta(
    extra_json_schema={
        "properties": {"type": {"type": "string"}, "name": {"type": "string"}, "tools": {"type": "array"}},
        "required": ["type"],
    }
)


# ── the body ──────────────────────────────────────────────────────────────────────────────────────


class StreamOptions(Struct):
    """How a stream is sent."""

    include_obfuscation: bool | None = None


Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
Verbosity = Literal["low", "medium", "high"]


class ReasoningOptions(Struct):
    """Whether the model thinks first."""

    effort: Effort | None = None
    summary: str | None = None


class TextFormat(Struct, tag="text"):
    """Plain text."""


class JsonObjectFormat(Struct, tag="json_object"):
    """Any JSON object."""


class JsonSchemaFormat(Struct, tag="json_schema"):
    """JSON that follows a schema."""

    schema: dict[str, Any]
    name: Name = "response"
    description: str | None = None
    strict: bool | None = None


class TextOptions(Struct, omit_defaults=True):
    """The form of the answer."""

    format: TextFormat | JsonObjectFormat | JsonSchemaFormat | None = None
    verbosity: Verbosity | None = None


Temperature = Annotated[float, Meta(ge=0, le=2)]
Share = Annotated[float, Meta(ge=0, le=1)]
TopK = Annotated[int, Meta(ge=-1, le=2**31 - 1)]
RepetitionPenalty = Annotated[float, Meta(ge=0.01, le=10)]
TopLogprobs = Annotated[int, Meta(ge=0, le=20)]
Stops = StopText | Annotated[list[StopText], entries("stops")]


class Metadata(Struct):
    """The keys of the metadata that mean something to turnlog. Clients may add others."""

    retention_seconds: Annotated[int, Meta(ge=RETENTION_RANGE_S[0], le=RETENTION_RANGE_S[1])] | None = None


METADATA = Meta(
    extra_json_schema={
        "$ref": REFERENCE.format(name="Metadata"),
        "additionalProperties": {"maxLength": METADATA_VALUE_CHARACTERS},
        "maxProperties": METADATA_PAIRS,
        "propertyNames": {"maxLength": METADATA_KEY_CHARACTERS},
    }
)


class ChatCompletionsFields(Struct, kw_only=True):
    """The fields that only Chat Completions has; they would have no effect here (D-36)."""

    messages: Annotated[None, unsupported("use input")] = None
    max_tokens: Annotated[None, unsupported("use max_output_tokens")] = None
    max_completion_tokens: Annotated[None, unsupported("use max_output_tokens")] = None
    response_format: Annotated[None, unsupported("use text.format")] = None
    reasoning_effort: Annotated[None, unsupported("use reasoning.effort")] = None
    verbosity: Annotated[None, unsupported("use text.verbosity")] = None
    functions: Annotated[None, unsupported("use tools")] = None
    function_call: Annotated[None, unsupported("use tool_choice")] = None
    logprobs: Annotated[None, unsupported("use include with message.output_text.logprobs")] = None
    n: Annotated[None, unsupported("send one request for each answer")] = None
    logit_bias: Annotated[None, unsupported("send the request without it")] = None
    modalities: Annotated[None, unsupported("send the request without it; answers are text")] = None
    audio: Annotated[None, unsupported("send the request without it; answers are text")] = None
    prediction: Annotated[None, unsupported("send the request without it")] = None
    web_search_options: Annotated[None, unsupported("send the request without it")] = None


class RequestBody(ChatCompletionsFields, kw_only=True):
    """The body of `POST /v1/responses`.

    Counts are in tokens, penalties as OpenAI defines them. Without a `seed` one is drawn.
    """

    # First: clients that send it leave out the others.
    prompt: Annotated[None, unsupported("send instructions and input")] = None
    model: Annotated[RequiredName, absent_if(("", 0, False))]
    input: str | Annotated[list[Any], entries("input_items", *ITEMS)]
    max_output_tokens: OutputTokens | None = None
    background: bool | None = None
    conversation: Annotated[None, unsupported("use previous_response_id")] = None
    metadata: Annotated[dict[str, Any], METADATA] | None = None
    tools: Annotated[list[Any], entries("tools", *TOOLS)] | None = None
    instructions: Annotated[str, characters("instructions_chars")] | None = None
    previous_response_id: Annotated[Name | None, absent_if(("",))] = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    store: bool | None = None
    temperature: Temperature | None = None
    top_p: Share | None = None
    seed: Annotated[int, Meta(ge=0, extra_json_schema={"maximum": MAX_SEED})] | None = None
    top_k: TopK | None = None
    min_p: Share | None = None
    repetition_penalty: RepetitionPenalty | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    stop: Stops | None = None
    top_logprobs: TopLogprobs | None = None
    include: list[str] | None = None
    tool_choice: Literal["none", "auto", "required"] | Annotated[dict[str, Any], TOOL_CHOICE] | None = None
    parallel_tool_calls: bool | None = None
    text: TextOptions | None = None
    reasoning: ReasoningOptions | None = None
    truncation: Literal["auto", "disabled"] | None = None
    prompt_cache_key: Name | None = None
    cache_salt: Name | None = None
    safety_identifier: Name | None = None
    max_tool_calls: OutputTokens | None = None


# ── the operators' bodies ─────────────────────────────────────────────────────────────────────────


class ResponseName(Struct, frozen=True, forbid_unknown_fields=True):
    """The response whose turn is to stop."""

    response_id: str


class BackupFile(Struct, frozen=True, forbid_unknown_fields=True):
    """The file on the server's machine that a backup is written to, as an absolute path."""

    path: str


class Removal(Struct, frozen=True, forbid_unknown_fields=True):
    """What is to be deleted, one of the three: a response, the conversation of one, all of an owner."""

    response_id: str | None = None
    chain: str | None = None
    owner: str | None = None


class ModelName(Struct, frozen=True, forbid_unknown_fields=True):
    """The model to load or unload."""

    name: RequiredName


class ModelSwap(Struct, frozen=True, forbid_unknown_fields=True):
    """The name to change, and the model that it shall mean."""

    name: RequiredName
    to: RequiredName
