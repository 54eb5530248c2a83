"""Given, when, then for the domain: short names for events, and histories to begin from."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

from turnlog.domain.errors import IllegalTransitionError
from turnlog.domain.events import (
    GenerationStarted,
    MetadataChanged,
    PersistHardTimedOut,
    ResponseCreated,
    ResponseDeleted,
    ResponseEvent,
    Sampling,
    SteerAccepted,
    SteersCommitted,
    SteersFailed,
    TurnCommitted,
    TurnFailed,
    TurnPersisted,
    TurnRequeued,
)
from turnlog.domain.ids import IdKind
from turnlog.domain.messages import Message
from turnlog.domain.ports import EngineInfo
from turnlog.domain.response import Response, fold
from turnlog.domain.tokens import record_prompt
from turnlog.domain.usage import Timing, Usage

Command = Callable[[Response], ResponseEvent | list[ResponseEvent]]
"""Something that a response is asked to do."""

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
REQUEUED = TurnRequeued(at_ms=NOON_MS + 5, boot_id="next")
DELETED = ResponseDeleted(at_ms=NOON_MS + 3_000, asked_by="local")
RENAMED = MetadataChanged(at_ms=NOON_MS + 2_500, metadata={"team": "zanzibar"})
STEERED = SteerAccepted(at_ms=NOON_MS + 20, steer_id="steer_1", input=(Message("user", "stop"),))
STEERS_COMMITTED = SteersCommitted(at_ms=NOON_MS + 2_200, steer_ids=("steer_1",), successor="resp_2")
STEERS_FAILED = SteersFailed(at_ms=NOON_MS + 2_200, steer_ids=("steer_1",), code="response_not_active")
HARD_TIMED_OUT = PersistHardTimedOut(at_ms=NOON_MS + 62_000, after_ms=60_000.0)


@dataclass
class Given:
    """A response with a history."""

    history: tuple[ResponseEvent, ...]

    def __init__(self, *history: ResponseEvent) -> None:
        self.history = history

    def when(self, command: Command) -> list[ResponseEvent]:
        """The events that the command causes; the response is what they and the history fold to."""
        response = self.response()
        caused = command(response)
        events = caused if isinstance(caused, list) else [caused]
        assert state(response) == state(fold([*self.history, *events]))
        return events

    def refuses(self, command: Command) -> str:
        """The sentence by which the response refuses the command; nothing has changed."""
        response = self.response()
        before = state(response)
        try:
            command(response)
        except IllegalTransitionError as error:
            assert state(response) == before
            return error.message
        raise AssertionError(f"a response that is {response.status} admits the command")

    def response(self) -> Response:
        """A response with this history. It was started by a command, so that it can go on."""
        response = fold(self.history[:1])
        for event in self.history[1:]:
            if isinstance(event, GenerationStarted):
                start(response)
            response.apply(event)
        return response


def state(response: Response) -> tuple[Any, ...]:
    """All that a response is."""
    entries = [(entry.output_index, entry.item, entry.text) for entry in response.output.open_entries]
    return response.created, response.started, response.status, response.items, entries, response.ended


def start(response: Response) -> list[ResponseEvent]:
    """Start it as `STARTED` says."""
    return response.start(
        at_ms=STARTED.at_ms,
        cache_class=STARTED.cache_class,
        engine=EngineInfo(
            model_fingerprint=STARTED.model_fingerprint,
            tokenizer_fingerprint=STARTED.tokenizer_fingerprint,
            context_window_tokens=None,
            concurrency=1,
        ),
        prompt=STARTED.prompt,
        output_budget_tokens=STARTED.output_budget_tokens,
        output_limit=STARTED.output_limit,
        truncated_messages=STARTED.truncated_messages,
        new_id=NumberedIds().new_id,
    )


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
