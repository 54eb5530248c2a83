"""The turns of one connection of WebSocket mode: what a `response.create` runs, and what it sends."""

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

from turnlog.adapters.litestar.stream import ClientLeftError, finishes_first, while_connected
from turnlog.adapters.openai.frames import heartbeat, obfuscate
from turnlog.adapters.openai.socket_messages import Create, frame_message
from turnlog.app.access import UnauthenticatedError
from turnlog.app.http.request_log import Notes
from turnlog.app.http.service import Service
from turnlog.app.http.socket_steering import ConnectionSteering
from turnlog.app.operations.logs import turn_context
from turnlog.app.turns.live import LiveTurn
from turnlog.app.turns.steering import Steering, steered_request, successor_request
from turnlog.app.turns.unstored import UnstoredTurns
from turnlog.domain.errors import ResponsesError
from turnlog.domain.events import TurnFailed
from turnlog.domain.owners import Caller
from turnlog.domain.request import TurnRequest

log = logging.getLogger("turnlog")

Tell = Callable[[str], Awaitable[None]]


class ConnectionTurns:
    """Runs the turns of a connection, each on the way that a turn over HTTP takes.

    Args:
        gone: set when the client has left, or is to be left.
        tell: sends a message.
        refuse: tells of an error, in a stream, that happened to what was begun at a time (monotonic seconds).
        note: logs a turn that was begun at a time.
        was_cut_off: whether the client is gone because it did not read, which ends no turn (D-25).
    """

    def __init__(
        self,
        service: Service,
        caller: Caller,
        gone: asyncio.Event,
        *,
        tell: Tell,
        refuse: Callable[[Exception, str | None, float], Awaitable[None]],
        note: Callable[[float, Notes], None],
        was_cut_off: Callable[[], bool],
    ) -> None:
        self._service = service
        self._caller = caller
        self._gone = gone
        self._tell = tell
        self._refuse = refuse
        self._note = note
        self._was_cut_off = was_cut_off
        self._unstored = UnstoredTurns()
        self.steering = ConnectionSteering(service.turns.steering, tell)

    async def run(self, create: Create) -> None:
        """Run a turn, and those by which steering continues it; send their frames, or say why not."""
        began_s = time.monotonic()
        previous: str | None = None
        steering: Steering | None = None
        try:
            request = create.request()
            previous = request.previous_response_id
            if steering := self.steering.waiting_for(request, create.stream_id):
                request = steered_request(request, steering)
            turn = await self._run_one(request, create, steering, began_s)
        except ClientLeftError:
            return
        except Exception as error:
            await self._refuse(error, create.stream_id, began_s)
            if steering and previous in self._unstored:
                await self.steering.give_up(steering, "successor_creation_failed")
            self._unstored.drop(previous)
            return
        while steering := await self.steering.settle(turn):
            if self._gone.is_set():
                return  # what is pending fails when the connection is closed
            request = successor_request(request, steering)
            try:
                turn = await self._run_one(request, create, steering, time.monotonic())
            except Exception as error:
                if not isinstance(error, ResponsesError):
                    log.exception("[responses] a steered turn could not be continued")
                await self.steering.give_up(steering, "successor_creation_failed")
                return

    async def _run_one(
        self, request: TurnRequest, create: Create, steering: Steering | None, began_s: float
    ) -> LiveTurn:
        """Run a turn and send its frames; it has ended, or its client has left it.

        Raises:
            ResponsesError: it is refused.
        """
        self.check_standing()
        with self._service.quotas.streaming(self._caller.owner):
            turn = await while_connected(self._begin(request, create.size_bytes, steering), self._until_gone)
            turn_context(turn.response.id, self._caller.owner)
            self.steering.begin(turn, create.stream_id)
            has_ended = False
            try:
                sending = self._send(turn, create.stream_id, obfuscated=request.obfuscate)
                has_ended = await finishes_first(sending, self._until_gone)
            finally:
                if not has_ended:
                    if not self._was_cut_off():
                        turn.leave()
                    await turn.ended.wait()
        self._note(began_s, Notes(response_id=turn.response.id))
        self._unstored.keep(turn.response, create.size_bytes)
        if isinstance(ended := turn.response.ended, TurnFailed) and ended.reason != "cancelled":
            self._unstored.drop(request.previous_response_id)
        return turn

    async def _begin(self, request: TurnRequest, size_bytes: int, steering: Steering | None) -> LiveTurn:
        owner = self._caller.owner
        with self._service.quotas.beginning(owner):
            return await self._service.turns.begin(
                request, owner, size_bytes=size_bytes, unstored=self._unstored, steering=steering
            )

    async def _send(self, turn: LiveTurn, stream_id: str | None, *, obfuscated: bool) -> None:
        log, number = turn.frames, -1
        async with aclosing(log.read(silence_s=self._service.heartbeat_s)) as chunks:
            async for chunk in chunks:
                number += len(chunk)
                for frame in chunk or [bytes(heartbeat(log.first(3), number))]:
                    self.check_standing()
                    sent = obfuscate(frame, secrets.choice) if obfuscated else frame
                    await self._tell(frame_message(bytes(sent), stream_id))
                # A send that need not wait yields to nobody.
                await asyncio.sleep(0)

    def check_standing(self) -> None:
        """Refuse a caller whose key was revoked.

        Raises:
            UnauthenticatedError: it was.
        """
        if not self._service.access.still_in(self._caller):
            raise UnauthenticatedError(given=True)

    async def _until_gone(self) -> Any:
        """As `receive` tells it of an HTTP client that has left."""
        await self._gone.wait()
        return {"type": "http.disconnect"}
