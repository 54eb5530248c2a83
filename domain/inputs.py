"""The items of a request, as pieces of a conversation that still have to be joined.

A client sends one item for each thing it knows: a message, a thought, a call, a call's output. The model
reads messages, in which a run of assistant-side items is one (R-161).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from turnlog.domain.errors import InvalidRequestError, ItemNotFoundError
from turnlog.domain.items import CustomCallItem, FunctionCallItem, Item, MessageItem, ReasoningItem
from turnlog.domain.messages import Message, ToolCall
from turnlog.domain.resent import Sent, new_messages
from turnlog.domain.toolcalls import canonical_input, check_echoes
from turnlog.domain.tools import custom_arguments, engine_name


class ItemReference(Struct, frozen=True):
    """An output item of a stored response, named by its id; `index` is its place in the input."""

    id: str
    index: int


Piece = Message | Sent | ItemReference
"""One input item: a message with one thing in it, maybe with an id, or a reference to an item of the log."""


def piece_of(item: Item) -> Message:
    """An output item as a piece of the conversation that follows it."""
    match item:
        case MessageItem(text=text):
            return Message("assistant", text)
        case ReasoningItem(text=text):
            return Message("assistant", "", reasoning=text)
        case FunctionCallItem():
            call = ToolCall(item.call_id, engine_name(item.name, item.namespace), item.arguments)
            return Message("assistant", "", tool_calls=(call,))
        case CustomCallItem():
            name = engine_name(item.name, item.namespace)
            call = ToolCall(item.call_id, name, custom_arguments(item.input))
            return Message("assistant", "", tool_calls=(call,))


def resolve(pieces: Iterable[Piece], items: Mapping[str, Item]) -> list[Sent]:
    """The pieces as messages, every reference replaced by what it names.

    Raises:
        ItemNotFoundError: a reference names an item that is not in `items`.
    """
    resolved = []
    for piece in pieces:
        match piece:
            case ItemReference(id=item_id, index=index):
                if item_id not in items:
                    raise ItemNotFoundError(item_id, index)
                resolved.append(Sent(piece_of(items[item_id]), item_id))
            case Sent():
                resolved.append(piece)
            case Message():
                resolved.append(Sent(piece))
    return resolved


def own_messages(
    sent: Sequence[Sent],
    history: Sequence[Message],
    item_ids: Collection[str],
    *,
    continues: bool,
    is_new: bool,
) -> tuple[Message, ...]:
    """The request's own messages: echoes taken out, runs joined, outputs in order, every tool rule passed.

    Args:
        history: the messages of the chain that the request continues.
        item_ids: the ids of the chain's output items.
        continues: whether there is such a chain, and an answer in it.
        is_new: whether nothing of it is sent again, as in a turn that is run from the log.

    Raises:
        InvalidRequestError: a rule about tool calls is broken (R-182 … R-212).
    """
    pieces = [each.message for each in sent]
    if continues and not is_new:
        # The stored copy of a call is the one that counts.
        pieces = new_messages(sent, history, item_ids)
        check_echoes((call.id for piece in pieces for call in piece.tool_calls), history)
    return canonical_input(history, join(pieces), continues=continues)


def join(pieces: Iterable[Message]) -> list[Message]:
    """Messages of which each run of assistant-side pieces is one (R-161, R-165)."""
    # A run is joined once, at its end: piece by piece a long one would be copied as often as it has pieces.
    runs: list[list[Message]] = []
    called = False  # whether the last run has a call
    for piece in pieces:
        last = runs[-1][-1] if runs else None
        if last and last.role == piece.role == "assistant" and not (called and _is_text(piece)):
            runs[-1].append(piece)
        else:
            runs.append([piece])
            called = False
        called = called or bool(piece.tool_calls)
    return [run[0] if len(run) == 1 else _joined(run) for run in runs]


def _is_text(piece: Message) -> bool:
    """Whether the piece is an assistant's message; one that follows a call begins a new turn."""
    return not piece.tool_calls and piece.reasoning is None


def _joined(run: Sequence[Message]) -> Message:
    return replace(
        run[0],
        content="".join(piece.content for piece in run),
        reasoning="".join(piece.reasoning for piece in run if piece.reasoning) or None,
        tool_calls=tuple(call for piece in run for call in piece.tool_calls),
    )


def check_images(messages: Iterable[Message], *, readable: bool) -> None:
    """Refuse pictures that the model cannot see, rather than let it make one up.

    Raises:
        InvalidRequestError: there is an image and the model reads none.
    """
    if not readable and any(message.images for message in messages):
        raise InvalidRequestError(
            "The input contains an image, but this model accepts text only.",
            param="input",
            code="unsupported_image",
        )
