"""What an auditor asks of the log and what is told of a response: filter, row and page. No I/O.

The rows are those of the read model; the rules by which they are filled are here, too: what of a turn is
searchable text, which requests are the same, and which responses are attempts at one.
"""

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from turnlog.domain.errors import InvalidRequestError
from turnlog.domain.events import FailureReason, Outcome, ResponseCreated
from turnlog.domain.items import CustomCallItem, FunctionCallItem, Item, MessageItem, ReasoningItem
from turnlog.domain.lifecycle import Status
from turnlog.domain.messages import Message
from turnlog.domain.usage import Usage

if TYPE_CHECKING:
    from turnlog.domain.response import Response

ApiStatus = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
Order = Literal["asc", "desc"]

MAX_LIMIT = 1000
"""Rows of one page."""

MIN_QUERY_CHARACTERS = 3
"""The text index knows runs of three characters; what is shorter is in it nowhere."""

RETRY_WINDOW_MS = 60_000
"""So long after an attempt ended, the same body is another attempt at the same request."""

_WORDS: Final[dict[str, tuple[str, ...]]] = {
    "state": tuple(status.value for status in Status),
    "status": get_args(ApiStatus),
    "reason": get_args(FailureReason),
    "order": get_args(Order),
}
_COUNT: Final = "x-stainless-retry-count"
_IDEMPOTENCY_KEY: Final = "idempotency-key"


class AuditFilter(Struct, frozen=True, kw_only=True):
    """Which responses are wanted. A condition that is None admits every response; all must hold.

    `since_ms` and `until_ms` bound when a response was created, the latter is not included. `state` is the
    lifecycle's, `status` the API's. `chain` is the id of any response of a conversation and admits all of
    it, forks and replays too. `metadata` holds values as text, other than strings as JSON. `tool` is a tool
    that was called. `min_latency_ms` is from creation to end, `min_tokens` counts input and output.
    `q` is text that the input or the output has somewhere, upper and lower case alike.

    A page has `limit` responses at most, those next after the one whose id is `after`, by creation.

    Raises:
        InvalidRequestError: a condition no response can ever meet; `param` names it.
    """

    since_ms: int | None = None
    until_ms: int | None = None
    state: str | None = None
    status: str | None = None
    reason: str | None = None
    model: str | None = None
    owner: str | None = None
    chain: str | None = None
    metadata: dict[str, str] = {}
    tool: str | None = None
    min_latency_ms: int | None = None
    min_tokens: int | None = None
    replay_of: str | None = None
    q: str | None = None
    limit: int = 20
    after: str | None = None
    order: Order = "desc"

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            _check_condition(name, value)
        for key, value in self.metadata.items():
            _check_text(f"metadata.{key}", key)
            _check_text(f"metadata.{key}", value)


def _check_condition(name: str, value: Any) -> None:
    if isinstance(value, str):
        _check_text(name, value)
        words = _WORDS.get(name)
        if words and value not in words:
            raise InvalidRequestError(f"{name} must be one of {', '.join(words)}.", param=name)
    if name == "q" and value is not None and len(value) < MIN_QUERY_CHARACTERS:
        raise InvalidRequestError(f"q must have at least {MIN_QUERY_CHARACTERS} characters.", param="q")
    if name == "limit" and not 1 <= value <= MAX_LIMIT:
        raise InvalidRequestError(f"limit must be from 1 to {MAX_LIMIT}.", param="limit")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise InvalidRequestError(f"{name} is out of range.", param=name)


def _check_text(name: str, value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidRequestError(f"{name} has half a surrogate pair in it.", param=name) from None


class AuditRow(Struct, frozen=True, kw_only=True):
    """What a list shows of a response.

    `chain` is the id of the oldest response the conversation leads back to, stored or not. `usage` is None
    until the turn has ended. `tools` are the tools that were called. `retry_digest` and `body_digest` tell
    the same request from others (`request_digests`); `tools` and both go when the content expires.
    """

    response_id: str
    previous_response_id: str | None
    chain: str
    replay_of: str | None
    owner: str
    model: str
    state: str
    status: ApiStatus
    outcome: Outcome | None
    reason: FailureReason | None
    created_ms: int
    started_ms: int | None
    ended_ms: int | None
    expires_at: int
    last_version: int
    expired: bool
    usage: Usage | None
    tools: tuple[str, ...]
    retry_digest: str | None
    body_digest: str | None

    @property
    def latency_ms(self) -> int | None:
        """From creation to end; None until the turn has ended."""
        return None if self.ended_ms is None else self.ended_ms - self.created_ms


class AuditPage(Struct, frozen=True):
    """Rows in the order that was asked for; `last_id` is the cursor for the next page."""

    rows: list[AuditRow]
    has_more: bool

    @property
    def last_id(self) -> str | None:
        """The id of the last row."""
        return self.rows[-1].response_id if self.rows else None


def searchable_text(response: "Response") -> str:
    """What `q` is looked for in: the own input messages of a turn and its listed output items.

    Each is on a line of its own: text, reasoning, and the name and arguments of calls. Instructions are not
    in it: every turn of a chain inherits them.
    """
    pieces = [*_spoken(response.created.input), *_produced(response.items)]
    # SQLite's tokenizer reads no further than a NUL.
    return "\n".join(piece for piece in pieces if piece).replace("\0", " ")


def _spoken(messages: Iterable[Message]) -> Iterator[str]:
    for message in messages:
        yield message.reasoning or ""
        yield message.content
        for call in message.tool_calls:
            yield f"{call.name} {call.arguments}"


def _produced(items: Iterable[Item]) -> Iterator[str]:
    for item in items:
        match item:
            case MessageItem(text=text) | ReasoningItem(text=text):
                yield text
            case FunctionCallItem(name=name, arguments=text) | CustomCallItem(name=name, input=text):
                yield f"{name} {text}"


def metadata_texts(metadata: dict[str, Any]) -> dict[str, str]:
    """Metadata as it is filtered by: strings as they are, anything else as JSON."""
    return {
        key: value if isinstance(value, str) else msgspec.json.encode(value).decode()
        for key, value in metadata.items()
    }


def request_digests(created: ResponseCreated) -> tuple[str | None, str]:
    """What is the same for two attempts at one request: of its retry keys, None without any, and of its body.

    The body's digest leaves out the seed, because one that was drawn cannot be told from one that was asked
    for. An idempotency key stands for itself; any other key marks a retry only of the same body, for some
    clients send one and the same in a whole conversation.
    """
    body = replace(
        created,
        at_ms=0,
        response_id="",
        sampling=replace(created.sampling, seed=0),
        expires_at=0,
        instance_id=0,
        boot_id="",
        retry_keys={},
        replay_of=None,
        wire_version=0,
    )
    body_digest = _digest(body)
    keys = {name: key for name, key in created.retry_keys.items() if name != _COUNT}
    if not keys:
        return None, body_digest
    if _IDEMPOTENCY_KEY in keys:
        return _digest((created.owner, keys[_IDEMPOTENCY_KEY])), body_digest
    return _digest((created.owner, sorted(keys.items()), body_digest)), body_digest


def _digest(told: Any) -> str:
    return sha256(msgspec.json.encode(told)).hexdigest()


def attempts(rows: Iterable[AuditRow]) -> list[list[AuditRow]]:
    """The rows as groups, each the attempts a client made at one request, in order; most have one.

    A response is another attempt when the one before it failed and has the same retry keys, or had the same
    body and ended less than a minute before. A replay is nobody's retry.
    """
    groups: list[list[AuditRow]] = []
    by_digest: dict[str, list[AuditRow]] = {}
    for row in sorted(rows, key=lambda row: row.created_ms):
        digests = [] if row.replay_of else [each for each in (row.retry_digest, row.body_digest) if each]
        known = (by_digest[each] for each in digests if each in by_digest)
        group = next((each for each in known if _is_retry(row, each[-1])), None)
        if group is None:
            group = []
            groups.append(group)
        group.append(row)
        by_digest.update(dict.fromkeys(digests, group))
    return groups


def _is_retry(row: AuditRow, earlier: AuditRow) -> bool:
    if earlier.reason is None:
        return False
    if row.retry_digest and row.retry_digest == earlier.retry_digest:
        return True
    ended_ms = earlier.created_ms if earlier.ended_ms is None else earlier.ended_ms
    return row.body_digest == earlier.body_digest and row.created_ms - ended_ms <= RETRY_WINDOW_MS


def attempts_with(response_id: str, rows: Sequence[AuditRow]) -> list[AuditRow]:
    """The attempts of which the response is one, in order."""
    return next(
        (group for group in attempts(rows) if any(row.response_id == response_id for row in group)), []
    )
