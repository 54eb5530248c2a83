"""The steering of one connection's turns: which may be steered, and what their client is told (D-40)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Literal

from turnlog.adapters.openai import socket_messages
from turnlog.adapters.openai.socket_messages import decode_steer_input, required_input, steer_message
from turnlog.app.turns.live import LiveTurn
from turnlog.app.turns.steering import Steer, Steering, SteerRefusedError, ended_refusal
from turnlog.domain.errors import InvalidRequestError, StorageError
from turnlog.domain.events import SteerFailure, TurnCommitted
from turnlog.domain.messages import Message
from turnlog.domain.request import TurnRequest

log = logging.getLogger("turnlog")

MOST_REMEMBERED = 256
"""Ended turns of a connection of which it is known why they take no input."""

MOST_WAITING = 64
"""Ended turns of a connection whose input waits for the outputs of their calls; the oldest fails."""

_FAILURES: dict[SteerFailure, str] = {
    "response_not_active": "The response ended without a place for the input.",
    "successor_creation_failed": "The response that was to have the input could not be created.",
}


class _Steered:
    """A turn of the connection, its stream, and the acknowledgements that are under way."""

    def __init__(self, steering: Steering, stream_id: str | None) -> None:
        self.steering = steering
        self.turn = steering.turn
        self.stream_id = stream_id
        self.acknowledging: set[asyncio.Task[None]] = set()

    async def until_acknowledged(self) -> None:
        if self.acknowledging:
            await asyncio.wait(self.acknowledging)


class ConnectionSteering:
    """Takes steering input for the turns of a connection, and sees to it that all of it has a fate.

    Args:
        make: makes the steering of a turn.
        tell: sends a message to the client, if it is still there.
    """

    def __init__(self, make: Callable[[LiveTurn], Steering], tell: Callable[[str], Awaitable[None]]) -> None:
        self._make = make
        self._tell = tell
        self._turns: dict[str, _Steered] = {}
        self._ended: dict[str, SteerRefusedError] = {}

    def begin(self, turn: LiveTurn, stream_id: str | None) -> None:
        """A turn of the connection has begun."""
        self._turns[turn.response.id] = _Steered(self._make(turn), stream_id)
        if turn.response.created.steers and (previous := turn.response.created.previous_response_id):
            self._forget(previous)

    async def take(self, message: socket_messages.Steer) -> None:
        """Accept input, or say why not; it is acknowledged once it is stored."""
        response_id = message.previous_response_id
        steered = self._turns.get(response_id)
        try:
            messages = _messages(message)
            steer = self._running(response_id).accept(messages, message.input, message.size_bytes)
        except SteerRefusedError as refusal:
            given = {"previous_response_id": response_id, "input": message.input}
            await self._tell_failed(steered, given, refusal)
            return
        assert steered, "it was running"
        # Beside the messages that follow: the store may be slow.
        task = asyncio.create_task(self._acknowledge(steered, steer))
        steered.acknowledging.add(task)
        task.add_done_callback(steered.acknowledging.discard)

    async def settle(self, turn: LiveTurn) -> Steering | None:
        """See to what is pending now that a turn has ended; the steering if another is to continue it."""
        steered = self._turns[turn.response.id]
        await steered.until_acknowledged()
        steering, response = steered.steering, turn.response
        if not isinstance(response.ended, TurnCommitted):
            await self.give_up(steering, "response_not_active")
        elif steering.pending and (stubs := required_input(response.items)):
            await self._wait(steered, stubs)
        elif steering.pending:
            return steering
        else:
            self._forget(response.id)
        return None

    def waiting_for(self, request: TurnRequest, stream_id: str | None) -> Steering | None:
        """The steering whose input waits for this request, because the turn before it ended in calls."""
        steered = self._turns.get(request.previous_response_id or "")
        if steered and steered.turn.response.ended and steered.stream_id == stream_id:
            return steered.steering
        return None

    async def give_up(self, steering: Steering, code: SteerFailure) -> None:
        """Return what is pending to the client."""
        response_id = steering.turn.response.id
        steered = self._turns[response_id]
        if steering.turn.response.ended:
            self._forget(response_id)
        for steer in steering.fail(code):
            given = {**_named(steer, response_id), "input": steer.given}
            await self._tell_failed(steered, given, SteerRefusedError(code, _FAILURES[code]))

    async def close(self) -> None:
        """The connection is gone, and so is whoever could continue what is pending."""
        for steered in self._turns.values():
            await steered.until_acknowledged()
            steered.steering.fail("response_not_active")

    def _running(self, response_id: str) -> Steering:
        """The steering of a turn, which may have ended.

        Raises:
            SteerRefusedError: the connection has no such turn, or has no longer.
        """
        if refusal := self._ended.get(response_id):
            raise refusal
        if response_id not in self._turns:
            raise SteerRefusedError("response_not_found", "The response is not one of this connection.")
        return self._turns[response_id].steering

    def _forget(self, response_id: str) -> None:
        """Remember of an ended turn only why it takes no input: it holds all its frames."""
        if steered := self._turns.pop(response_id, None):
            self._ended[response_id] = ended_refusal(steered.turn)
        if len(self._ended) > MOST_REMEMBERED:
            del self._ended[next(iter(self._ended))]

    async def _wait(self, steered: _Steered, stubs: list[dict[str, Any]]) -> None:
        for steer in steered.steering.pending:
            named = _named(steer, steered.turn.response.id)
            reason = "waiting_for_required_input"
            await self._tell_of(steered, "pending", named, reason=reason, required_input=stubs)
        waiting = [each for each in self._turns.values() if each.turn.response.ended]
        if len(waiting) > MOST_WAITING:
            await self.give_up(waiting[0].steering, "successor_creation_failed")

    async def _acknowledge(self, steered: _Steered, steer: Steer) -> None:
        try:
            await steered.steering.until_stored()
        except StorageError as error:
            log.warning("[responses] steering input was not stored: %s", error.code)
            await self.give_up(steered.steering, "successor_creation_failed")
        else:
            await self._tell_of(steered, "accepted", _named(steer, steered.turn.response.id))

    async def _tell_failed(
        self, steered: _Steered | None, given: dict[str, Any], refusal: SteerRefusedError
    ) -> None:
        error = {"type": "invalid_request_error", "code": refusal.code, "message": refusal.message}
        await self._tell_of(steered, "failed", given, error=error)

    async def _tell_of(
        self,
        steered: _Steered | None,
        outcome: Literal["accepted", "pending", "failed"],
        steer: dict[str, Any],
        **fields: Any,
    ) -> None:
        number = max(len(steered.turn.frames) - 1, 0) if steered else 0
        stream_id = steered.stream_id if steered else None
        await self._tell(steer_message(outcome, number, steer, stream_id, **fields))


def _messages(message: socket_messages.Steer) -> tuple[Message, ...]:
    try:
        return decode_steer_input(message.input, message.unknown)
    except InvalidRequestError as error:
        raise SteerRefusedError("invalid_input", error.message) from error


def _named(steer: Steer, response_id: str) -> dict[str, Any]:
    return {"id": steer.id, "previous_response_id": response_id}
