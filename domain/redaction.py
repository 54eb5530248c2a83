"""Redaction of an expired response's events: that they happened and when stays, their content goes."""

from typing import Any, assert_never

from msgspec.structs import replace

from turnlog.domain.events import (
    ContentExpired,
    GenerationStarted,
    ItemClosed,
    ItemExtended,
    ItemOpened,
    MetadataChanged,
    PersistHardTimedOut,
    ReasoningDropped,
    ResponseCreated,
    ResponseDeleted,
    ResponseEvent,
    SteerAccepted,
    SteersCommitted,
    SteersFailed,
    TurnCommitted,
    TurnFailed,
    TurnPersisted,
    TurnRequeued,
)
from turnlog.domain.items import CustomCallItem, FunctionCallItem, Item, MessageItem, ReasoningItem
from turnlog.domain.retention import requested_retention_s
from turnlog.domain.tokens import PromptRecord


def without_content(event: ResponseEvent, sha256: str) -> ResponseEvent:
    """The event without the client's or the model's content; `sha256` is of the bytes it was stored as.

    An event that has no content stays as it is.
    """
    gone: dict[str, Any]
    match event:
        case TurnPersisted() | PersistHardTimedOut() | ContentExpired():
            return event
        case TurnRequeued() | ResponseDeleted() | SteersCommitted() | SteersFailed():
            return event
        case SteerAccepted():
            gone = {"input": ()}
        case ResponseCreated():
            return _blank_request(event, sha256)
        case GenerationStarted(prompt=prompt):
            # The digest goes too: it could confirm a guess of the prompt.
            gone = {"prompt": PromptRecord(tokens=prompt.tokens, digest="", suffix=b"")}
        case ItemOpened() | ItemClosed():
            gone = {"item": _blank(event.item)}
        case ItemExtended():
            gone = {"deltas": (), "logprobs": ()}
        case MetadataChanged():
            gone = {"metadata": {}}
        case ReasoningDropped():
            gone = {"text": ""}
        case TurnCommitted():
            gone = {"output_ids": None}
        case TurnFailed():
            gone = {"message": "", "calls": (), "output_ids": None}
        case _:
            assert_never(event)
    return replace(event, expired_sha256=sha256, **gone)


def withheld(event: ResponseEvent) -> ResponseEvent:
    """The event as a reader without access to its content sees it."""
    # No hash of the content: it could confirm a guess.
    return replace(without_content(event, ""), expired_sha256=None)


def _blank_request(event: ResponseCreated, sha256: str) -> ResponseCreated:
    """What stays is listed, not what goes: a field that is new one day goes until someone decides."""
    return ResponseCreated(
        at_ms=event.at_ms,
        expired_sha256=sha256,
        response_id=event.response_id,
        model=event.model,
        input=(),
        sampling=replace(event.sampling, stop=()),
        expires_at=event.expires_at,
        instance_id=event.instance_id,
        boot_id=event.boot_id,
        owner=event.owner,
        previous_response_id=event.previous_response_id,
        max_output_tokens=event.max_output_tokens,
        store=event.store,
        replay_of=event.replay_of,
        retention_s=requested_retention_s(event),
        wire_version=event.wire_version,
        background=event.background,
        generate=event.generate,
        steers=event.steers,
        surface=event.surface,
    )


def _blank(item: Item) -> Item:
    match item:
        case MessageItem():
            return MessageItem(item.id, item.status, "")
        case ReasoningItem():
            return ReasoningItem(item.id, "")
        case FunctionCallItem():
            return FunctionCallItem(item.id, item.call_id, "", "", item.status)
        case CustomCallItem():
            return CustomCallItem(item.id, item.call_id, "", "", item.status)
        case _:
            assert_never(item)
