"""Conditions by which auditors find responses."""

from typing import Any, Final, Literal, get_args

from msgspec import Struct
from msgspec.structs import asdict

from turnlog.domain.audit.folding import folded
from turnlog.domain.audit.rows import ApiStatus
from turnlog.domain.errors import ForbiddenError, InvalidRequestError
from turnlog.domain.events import FailureReason, Surface
from turnlog.domain.lifecycle import Status
from turnlog.domain.owners import Caller

Order = Literal["asc", "desc"]

MAX_LIMIT = 1000
"""Rows of one page."""

MAX_METADATA = 16
"""Pairs of metadata to ask for: no response has more."""

_WORDS: Final[dict[str, tuple[str, ...]]] = {
    "state": tuple(status.value for status in Status),
    "status": get_args(ApiStatus),
    "reason": get_args(FailureReason),
    "surface": get_args(Surface),
    "order": get_args(Order),
}
_FAILED: Final = {"status": ("failed", "cancelled"), "state": ("failed",)}


class AuditFilter(Struct, frozen=True, kw_only=True):
    """Which responses are wanted. A condition that is None admits every response; all must hold.

    `since_ms` and `until_ms` bound when a response was created, the latter is not included. `state` is the
    lifecycle's, `status` the API's. `chain` is the id of any response of a conversation and admits all of
    it, forks and replays too. `metadata` holds values as text, other than strings as JSON. `tool` is a tool
    that was called. `min_latency_ms` is from creation to end, `min_tokens` counts input and output.
    `q` is text that the input or the output has somewhere; what looks the same is the same, and so are upper
    and lower case (`folding.folded`).

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
    surface: str | None = None
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
        if len(self.metadata) > MAX_METADATA:
            raise InvalidRequestError(
                f"{len(self.metadata)} metadata filters are too many; a response has at most "
                f"{MAX_METADATA} pairs.",
                param="metadata",
            )
        for key, value in self.metadata.items():
            _check_text(f"metadata.{key}", key)
            _check_text(f"metadata.{key}", value)


def _check_condition(name: str, value: Any) -> None:
    if isinstance(value, str):
        _check_text(name, value)
        words = _WORDS.get(name)
        if words and value not in words:
            raise InvalidRequestError(f"{name} must be one of {', '.join(words)}.", param=name)
    if name == "q" and value is not None and not folded(value):
        raise InvalidRequestError("q must have at least one visible character.", param="q")
    if name == "limit" and not 1 <= value <= MAX_LIMIT:
        raise InvalidRequestError(f"limit must be from 1 to {MAX_LIMIT}.", param="limit")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise InvalidRequestError(f"{name} is out of range.", param=name)


def _check_text(name: str, value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidRequestError(f"{name} contains an unpaired surrogate.", param=name) from None


def check_may_ask(wanted: AuditFilter, caller: Caller) -> None:
    """Refuse conditions on content that the caller may not read: whether it is met would tell of it.

    Raises:
        ForbiddenError: the filter looks into what was said in turns of which the caller sees metadata only.
    """
    only_failed = wanted.reason is not None or any(
        getattr(wanted, name) in words for name, words in _FAILED.items()
    )
    looks_inside = wanted.q is not None or wanted.tool is not None or bool(wanted.metadata)
    if looks_inside and not caller.reads_content(failed=only_failed):
        raise ForbiddenError(
            "q, tool and metadata search content, which requires the role auditor. "
            "Operators may search failed turns: add status=failed."
        )
