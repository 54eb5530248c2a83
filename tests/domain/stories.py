"""Given, when, then for the domain: short names for events, and histories to begin from."""

from dataclasses import dataclass
from itertools import count

from turnlog.domain.errors import IllegalTransitionError
from turnlog.domain.events import (
    GenerationStarted,
    PersistHardTimedOut,
    ResponseCreated,
    ResponseEvent,
    Sampling,
    TurnCommitted,
    TurnFailed,
    TurnPersisted,
)
from turnlog.domain.ids import IdKind
from turnlog.domain.lifecycle import LifecycleEvent
from turnlog.domain.messages import Message
from turnlog.domain.response import Response, fold
from turnlog.domain.tokens import record_prompt
from turnlog.domain.usage import Timing, Usage

NOON_MS = 1_795_000_000_000

CREATED = ResponseCreated(
    at_ms=NOON_MS,
    response_id="resp_1",
    model="tiny",
    input=(Message("user", "hi"),),
    sampling=Sampling(temperature=1.0, top_p=1.0, seed=7),
    expires_at=NOON_MS // 1000 + 3600,
    instance_id=1,
    boot_id="boot",
    owner="local",
)
STARTED = GenerationStarted(
    at_ms=NOON_MS + 10,
    cache_class="fresh",
    model_fingerprint="m",
    tokenizer_fingerprint="t",
    prompt=record_prompt((1, 2, 3)),
    output_budget_tokens=2048,
)
COMMITTED = TurnCommitted(
    at_ms=NOON_MS + 2_000,
    status="completed",
    usage=Usage(input_tokens=3, output_tokens=2, cached_tokens=0),
    timing=Timing(queue_ms=10.0),
)
FAILED = TurnFailed(at_ms=NOON_MS + 2_000, reason="error", message="it broke")
PERSISTED = TurnPersisted(at_ms=NOON_MS + 2_100, write_ms=2.5)
HARD_TIMED_OUT = PersistHardTimedOut(at_ms=NOON_MS + 62_000, after_ms=60_000.0)


@dataclass
class Given:
    """A response with a history."""

    history: tuple[ResponseEvent, ...]

    def __init__(self, *history: ResponseEvent) -> None:
        self.history = history

    def when(self, event: LifecycleEvent) -> Response:
        """The response after it was asked to record `event`."""
        response = fold(self.history)
        response.record(event)
        return response

    def refuses(self, event: LifecycleEvent) -> str:
        """The sentence by which the response refuses `event`."""
        response = fold(self.history)
        before = response.status
        try:
            response.record(event)
        except IllegalTransitionError as error:
            assert response.status == before
            return error.message
        raise AssertionError(f"{event} was admitted")


def numbered_ids() -> "NumberedIds":
    """Ids that count: msg_1, rs_2 …"""
    return NumberedIds()


class NumberedIds:
    """An id source without chance."""

    def __init__(self) -> None:
        self._numbers = count(1)

    def new_id(self, kind: IdKind) -> str:
        """The next id of that kind."""
        return f"{kind.value}{next(self._numbers)}"

    def new_seed(self) -> int:
        """Always the same seed."""
        return 7
