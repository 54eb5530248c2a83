"""The chat template of a model, which takes any conversation: each is recast until the template accepts it.

Every chat model can be given tools. If its own template shows them and `mlx_lm` can read the calls it asks
for, the template is used. Else the tools go into the system message in the style of Hermes and Qwen, calls
are text of the assistant and outputs are messages of the user.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

from turnlog.adapters.mlx import recast
from turnlog.adapters.mlx.traits import Traits, traits_of
from turnlog.domain.characters import read_json
from turnlog.domain.errors import InvalidRequestError
from turnlog.domain.messages import UNSEEN_IMAGE, Message, ToolCall
from turnlog.domain.ports import EFFORTS
from turnlog.domain.tools import Json

_NOT_THINKING = ("none", "minimal", "low")
"""The efforts at which a model does not think that has no more than a switch for it."""

_ERROR_MARK = "[tool error] "
_GREETING: Json = {"role": "user", "content": "Hi"}
_NAMES = {"user": "user message", "assistant": "assistant message", "tool": "function_call_output"}

Form = Callable[[Sequence[Json], Sequence[Json]], tuple[Sequence[Json], Sequence[Json]]]
"""Recasts a conversation and its tools."""


class ChatTemplate:
    """The chat template of one tokenizer, a `TokenizerWrapper` of `mlx_lm`. Any thread."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    @cached_property
    def _traits(self) -> Traits:
        # Found by the first conversation, within the bounds of time and memory that rendering has.
        return traits_of(self._applied, reads_calls=self._tokenizer.has_tool_calling)

    def fitted(
        self, conversation: Sequence[Json], tools: Sequence[Json] = (), *, effort: str | None = None
    ) -> "FittedTemplate":
        """The template for one conversation and what differs little from it.

        Args:
            conversation: as `conversation_of` makes it.
            tools: as `functions` makes them.

        Raises:
            InvalidRequestError: the template refuses the conversation in every form.
        """
        options = self._thinking(effort)
        try:
            return self._fitted(conversation, tools, options)
        except InvalidRequestError as error:
            raise self._refusal(error, conversation, tools, options) from error

    def effort(self, asked: str | None) -> str | None:
        """The reasoning effort that a prompt asks for; None if the template has no place for it (R-173)."""
        if asked is None or self._traits.effort == "none":
            return None
        if self._traits.effort == "levels":
            place = EFFORTS.index(asked)
            return min(self._traits.levels, key=lambda level: abs(EFFORTS.index(level) - place))
        return "none" if asked in _NOT_THINKING else asked

    def _thinking(self, effort: str | None) -> Json:
        """How the template is told of an effort (R-173, R-239)."""
        if effort is None:
            return {}
        if self._traits.effort != "levels":
            return {"enable_thinking": effort not in _NOT_THINKING}
        level = self.effort(effort)
        return {"reasoning_effort": level, "enable_thinking": level != "none"}

    def _fitted(self, conversation: Sequence[Json], tools: Sequence[Json], options: Json) -> "FittedTemplate":
        *others, last = self._forms()
        for form in others:
            try:
                return FittedTemplate(self._applied, form, conversation, tools, options)
            except InvalidRequestError:
                continue
        return FittedTemplate(self._applied, last, conversation, tools, options)

    def _forms(self) -> Iterator[Form]:
        """What may be made of a conversation, the closest to it first."""
        for form in (self._own, self._in_turns, self._plain):
            yield self._in_parts(form) if self._traits.in_parts else form

    def _own(
        self, conversation: Sequence[Json], tools: Sequence[Json]
    ) -> tuple[Sequence[Json], Sequence[Json]]:
        """As the template's authors meant it, as far as that goes."""
        traits = self._traits
        if not traits.tools or not (tools or traits.calls_untooled):
            conversation, tools = recast.spelt_out(conversation, tools), ()
        for change in traits.calls:
            conversation = change(conversation)
        return conversation if traits.system else recast.without_system(conversation), tools

    def _in_turns(
        self, conversation: Sequence[Json], tools: Sequence[Json]
    ) -> tuple[Sequence[Json], Sequence[Json]]:
        conversation, tools = self._own(conversation, tools)
        return recast.alternating(conversation), tools

    def _plain(
        self, conversation: Sequence[Json], tools: Sequence[Json]
    ) -> tuple[Sequence[Json], Sequence[Json]]:
        return recast.plain(conversation, tools), ()

    def _in_parts(self, form: Form) -> Form:
        def in_parts(
            conversation: Sequence[Json], tools: Sequence[Json]
        ) -> tuple[Sequence[Json], Sequence[Json]]:
            conversation, tools = form(conversation, tools)
            return recast.in_parts(conversation), tools

        return in_parts

    def _applied(
        self, conversation: Sequence[Json], tools: Sequence[Json] = (), *, asks: bool = True, **options: Any
    ) -> str:
        if tools:
            options["tools"] = list(tools)
        try:
            return str(
                self._tokenizer.apply_chat_template(
                    list(conversation), tokenize=False, add_generation_prompt=asks, **options
                )
            )
        except Exception as error:
            # A template is a program run on what the client sent; whatever it raises, that did not suit it.
            raise InvalidRequestError(str(error) or type(error).__name__, param="input") from error

    def _refusal(
        self,
        error: InvalidRequestError,
        conversation: Sequence[Json],
        tools: Sequence[Json],
        options: Json,
    ) -> InvalidRequestError:
        """Says where in the conversation the template stops, and what to change."""

        def is_refused(messages: Sequence[Json]) -> bool:
            try:
                self._fitted(messages, tools, options)
            except InvalidRequestError:
                return True
            return False

        if is_refused([_GREETING]):
            advice = "It refuses any other, too: the model needs another chat template"
        else:
            lengths = range(1, len(conversation))
            place = bisect_left(lengths, 1, key=lambda length: int(is_refused(conversation[:length])))
            advice = f"It stops at {_named(conversation, place)}: change that or leave it out"
        said = error.message.rstrip(".")
        return InvalidRequestError(
            f"The model's chat template rejected this conversation: {said}. {advice}.", param="input"
        )


class FittedTemplate:
    """A chat template with the form that it takes one conversation in.

    Raises:
        InvalidRequestError: the template refuses that form.
    """

    def __init__(
        self,
        apply: Callable[..., str],
        form: Form,
        conversation: Sequence[Json],
        tools: Sequence[Json],
        options: Json,
    ) -> None:
        self._apply = apply
        self._form = form
        self._tools = tools
        self._options = options
        self._conversation = conversation
        self._text = self._rendered(conversation, asks=True)

    def __call__(self, conversation: Sequence[Json], *, asks: bool = True) -> str:
        """The text of a conversation, at its end the beginning of an answer if the template `asks` for one.

        Raises:
            InvalidRequestError: the template refuses the conversation in this form.
        """
        if conversation is self._conversation and asks:
            return self._text
        return self._rendered(conversation, asks=asks)

    def _rendered(self, conversation: Sequence[Json], *, asks: bool) -> str:
        return self._apply(*self._form(conversation, self._tools), asks=asks, **self._options)


def _named(conversation: Sequence[Json], place: int) -> str:
    """A message as its client can find it: the how-manyth of its kind it is."""
    role = conversation[place]["role"]
    if role == "system":
        return "the instructions"
    number = sum(message["role"] == role for message in conversation[: place + 1])
    return f"{_NAMES[role]} {number} of {sum(message['role'] == role for message in conversation)}"


def conversation_of(messages: Sequence[Message]) -> list[Json]:
    """Messages as chat templates know them: those of Chat Completions, but arguments are objects."""
    names = {call.id: call.name for message in messages for call in message.tool_calls}
    return [_message(message, names) for message in messages]


def _message(message: Message, names: dict[str, str]) -> Json:
    found: Json = {"role": message.role, "content": message.content}
    if message.is_error:
        found["content"] = _ERROR_MARK + message.content
    if message.images:
        found["content"] = "\n".join([message.content, *[UNSEEN_IMAGE] * len(message.images)]).lstrip()
    if message.reasoning:
        # Templates call it the one or the other.
        found["reasoning"] = found["reasoning_content"] = message.reasoning
    if message.tool_calls:
        found["tool_calls"] = [_tool_call(call) for call in message.tool_calls]
    if message.call_id is not None:
        found["tool_call_id"] = message.call_id
        if message.call_id in names:
            found["name"] = names[message.call_id]
    return found


def _tool_call(call: ToolCall) -> Json:
    function = {"name": call.name, "arguments": _arguments(call.arguments)}
    return {"id": call.id, "type": "function", "function": function}


def _arguments(text: str) -> Any:
    """As an object where they are one: most templates turn it into JSON themselves."""
    try:
        found = read_json(text or "{}")
    except (ValueError, RecursionError):
        return text
    return found if isinstance(found, dict) else text
