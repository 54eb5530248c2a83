"""Steering: input that a client sends while its turn runs, for the turn that continues it (D-40).

What is accepted is owned: it is stored first, then it becomes part of a turn or fails, as the log says.
"""

import asyncio
from collections.abc import MutableSet
from typing import Any, Literal, NamedTuple

from msgspec.structs import replace

from turnlog.app.settings import chain_write_wait_s
from turnlog.app.turns.live import LiveTurn
from turnlog.domain.errors import InvalidRequestError, StorageError
from turnlog.domain.events import Recorded, SteerFailure
from turnlog.domain.ids import IdKind
from turnlog.domain.messages import Message
from turnlog.domain.ports import Clock, IdSource
from turnlog.domain.request import TurnRequest
from turnlog.domain.response import api_status

MOST_STEERS = 16
MOST_STEER_BYTES = 1024 * 1024
"""What may be pending for one response; a submission that is alone may be as long as a message."""

SteerRefusal = Literal[
    "response_not_found",
    "invalid_input",
    "steering_not_supported",
    "too_many_pending_steers",
    "response_already_completed",
    "response_not_active",
    "successor_creation_failed",
]


class SteerRefusedError(InvalidRequestError):
    """Steering input is not accepted, or could not be committed."""

    def __init__(self, code: SteerRefusal | SteerFailure, message: str) -> None:
        super().__init__(message, code=code)


class Steer(NamedTuple):
    """A submission that was accepted; `given` is its input as the client sent it."""

    id: str
    given: Any
    size_bytes: int


class Steering:
    """What was accepted for the successor of one turn, and has neither become part of one nor failed.

    Args:
        owing: the ids of stored responses that owe such input its fate.
    """

    def __init__(self, turn: LiveTurn, owing: MutableSet[str], clock: Clock, ids: IdSource) -> None:
        self.turn = turn
        self.pending: list[Steer] = []
        self._owing = owing
        self._clock = clock
        self._ids = ids

    @property
    def input(self) -> tuple[Message, ...]:
        """What is pending, in the order of submission."""
        return tuple(message for messages in self.turn.response.steers.values() for message in messages)

    def accept(self, messages: tuple[Message, ...], given: Any, size_bytes: int) -> Steer:
        """Take input; it is not owned before it is stored (`until_stored`).

        Raises:
            SteerRefusedError: the turn takes none, or no more.
        """
        self._check_takes(size_bytes)
        turn, steer = self.turn, Steer(self._ids.new_id(IdKind.STEER), given, size_bytes)
        events = turn.response.accept_steer(steer.id, messages, at_ms=self._clock.now_ms())
        turn.publish(events)
        if turn.log:
            self._owing.add(turn.response.id)
            turn.log.keep(events)
        self.pending.append(steer)
        return steer

    async def until_stored(self) -> None:
        """Wait until what was accepted is stored, and have the turn stop at its next token.

        Raises:
            StorageError: it could not be stored, or not in time.
        """
        if log := self.turn.log:
            try:
                async with asyncio.timeout(chain_write_wait_s()):
                    await asyncio.shield(asyncio.wrap_future(log.last_write))
            except TimeoutError:
                raise StorageError("The store did not take the input in time.") from None
        self.turn.is_steered = True

    def commit(self, successor: str, *, together: bool) -> list[Recorded]:
        """All that is pending is part of `successor`; the events to store with its first one.

        Args:
            together: whether the successor is stored; otherwise these events are stored here.
        """
        events = self.turn.response.commit_steers(successor, at_ms=self._clock.now_ms())
        self._let_go()
        if self.turn.log is None:
            return []
        if together:
            return self.turn.log.numbered(events)
        self.turn.log.keep(events)
        return []

    def fail(self, code: SteerFailure) -> list[Steer]:
        """Nothing that is pending becomes part of a turn; what to tell the client of."""
        events = self.turn.response.fail_steers(code, at_ms=self._clock.now_ms())
        if events:
            self.turn.publish(events)
        if events and self.turn.log:
            self.turn.log.keep(events)
        failed = self.pending[:]
        self._let_go()
        return failed

    def _let_go(self) -> None:
        self.pending.clear()
        self._owing.discard(self.turn.response.id)

    def _check_takes(self, size_bytes: int) -> None:
        if self.turn.response.ended or self.turn.abort_reason:
            raise ended_refusal(self.turn)
        if not self.turn.response.created.generate:
            raise SteerRefusedError("steering_not_supported", "A response without output cannot be steered.")
        total_bytes = size_bytes + sum(steer.size_bytes for steer in self.pending)
        if len(self.pending) >= MOST_STEERS or (self.pending and total_bytes > MOST_STEER_BYTES):
            raise SteerRefusedError(
                "too_many_pending_steers", "Too much steering input is pending for the response."
            )


def ended_refusal(turn: LiveTurn) -> SteerRefusedError:
    """Why a turn takes no input that has ended, or is being stopped."""
    status = api_status(turn.response)
    if status == "completed":
        return SteerRefusedError("response_already_completed", "The response is completed.")
    return SteerRefusedError("response_not_active", f"The response takes no more input; it is {status}.")


def steered_request(request: TurnRequest, steering: Steering) -> TurnRequest:
    """The request with what is pending before its own input; outputs of calls are put first (D-39)."""
    steers = tuple(steering.turn.response.steers)
    return replace(request, input=(*steering.input, *request.input), steers=steers)


def successor_request(request: TurnRequest, steering: Steering) -> TurnRequest:
    """The request of the turn that continues a steered one, by the settings of the one before it."""
    bare = replace(request, input=(), previous_response_id=steering.turn.response.id, is_new=True)
    return steered_request(bare, steering)
