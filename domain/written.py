"""Which events a server writes: what an imported log may hold, field by field and in which order.

The fold and the codec take more than that, because today's must read yesterday's log; but a log that comes
from elsewhere was perhaps never written by a server at all.
"""

import re
from collections.abc import Iterator

from turnlog.domain.events import (
    ContentExpired,
    GenerationStarted,
    ItemClosed,
    ItemExtended,
    ItemOpened,
    PersistHardTimedOut,
    ReasoningDropped,
    Recorded,
    ResponseCreated,
    TurnCommitted,
    TurnFailed,
    TurnPersisted,
)
from turnlog.domain.ids import IdKind
from turnlog.domain.items import CustomCallItem, FunctionCallItem, Item, MessageItem, ReasoningItem
from turnlog.domain.lifecycle import Lifecycle, Status
from turnlog.domain.owners import is_owner_name

_ID = re.compile(r"([a-z]+_)[0-9a-f]{32}")
_KINDS: dict[type[Item], IdKind] = {
    MessageItem: IdKind.MESSAGE,
    ReasoningItem: IdKind.REASONING,
    FunctionCallItem: IdKind.FUNCTION_CALL,
    CustomCallItem: IdKind.CUSTOM_CALL,
}
_YEAR_10000_MS = 253_402_300_800_000
_MOST = 2**63 - 1
"""What a column of the store holds."""


class NotWrittenError(ValueError):
    """No server writes such an event; the sentence begins with the field at fault."""


class Writing:
    """The events of one response as they come, each checked behind the ones before it."""

    def __init__(self) -> None:
        self._life: Lifecycle | None = None
        self._version = 0

    def check(self, recorded: Recorded) -> None:
        """Take the next event.

        Raises:
            NotWrittenError: a field has a value that no server gives it.
            IllegalTransitionError: the event does not follow the ones before it.
        """
        event = recorded.event
        if recorded.version != self._version + 1:
            raise NotWrittenError(
                f"version: {str(recorded.version)[:40]} does not follow the last, {self._version}"
            )
        self._version += 1
        _check_id("response_id", recorded.response_id, IdKind.RESPONSE)
        for field, at_ms in _times(recorded):
            _check_number(field, at_ms, most=_YEAR_10000_MS - 1)
        if isinstance(event, ResponseCreated):
            self._begin(recorded.response_id, event)
            return
        if self._life is None:
            raise NotWrittenError("event: a response must begin with its only creation event")
        match event:
            case (
                GenerationStarted() | TurnCommitted() | TurnFailed() | TurnPersisted() | PersistHardTimedOut()
            ):
                self._life.check(type(event))
                self._life.move(event)
            case ContentExpired():
                settled = self._life.status in (Status.COMMITTED, Status.HARD_TIMED_OUT)
                # A stored commit is persisted, whether or not the event that says so was stored.
                (Lifecycle(Status.PERSISTED) if settled else self._life).expire(at_ms=event.at_ms)
            case ItemOpened() | ItemClosed() | ItemExtended() | ReasoningDropped():
                if self._life.status is not Status.IN_PROGRESS:
                    raise NotWrittenError(f"event: nothing is said in a response that is {self._life.status}")
        _check_content(event)

    def _begin(self, response_id: str, created: ResponseCreated) -> None:
        if self._life is not None or created.response_id != response_id:
            raise NotWrittenError("event: a response must begin with its only creation event")
        self._life = Lifecycle()
        if not is_owner_name(created.owner):
            raise NotWrittenError(f"owner: {created.owner[:64]!r} is no owner's name")
        for field in ("previous_response_id", "replay_of"):
            if (other := getattr(created, field)) is not None:
                _check_id(field, other, IdKind.RESPONSE)
        _check_number("sampling.seed", created.sampling.seed, most=2**64 - 1)
        _check_number("instance_id", created.instance_id)


def _times(recorded: Recorded) -> Iterator[tuple[str, int]]:
    yield "at_ms", recorded.event.at_ms
    if isinstance(recorded.event, ResponseCreated):
        yield "expires_at", recorded.event.expires_at * 1000


def _check_content(event: object) -> None:
    match event:
        case ItemOpened() | ItemClosed():
            _check_number("output_index", event.output_index)
            _check_id("item.id", event.item.id, _KINDS[type(event.item)])
        case TurnCommitted() | TurnFailed():
            for field in type(event.usage).__struct_fields__:
                if (count := getattr(event.usage, field)) is not None:
                    _check_number(f"usage.{field}", count)
        case GenerationStarted():
            _check_number("prompt.tokens", event.prompt.tokens)
            _check_number("output_budget_tokens", event.output_budget_tokens)


def _check_id(field: str, given: str, kind: IdKind) -> None:
    found = _ID.fullmatch(given)
    if not found or found[1] != kind:
        raise NotWrittenError(f"{field}: {given[:64]!r} is no id of this kind, {kind}… with 32 hex digits")


def _check_number(field: str, given: int, *, most: int = _MOST) -> None:
    if not 0 <= given <= most:
        raise NotWrittenError(f"{field}: {str(given)[:40]} is not from 0 to {most}")
