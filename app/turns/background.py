"""Background turns: accepted and stored at once, run when other turns leave room (D-40).

One turn of a model at a time is prepared and waits for a place in the lane; the others are ids in a queue.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from turnlog.app.settings import chain_write_wait_s
from turnlog.app.turns.accept import Accepted, Turns
from turnlog.app.turns.live import FrameLog, LiveTurn
from turnlog.app.turns.live_turns import LiveTurns
from turnlog.app.turns.queued_turns import QueuedTurn
from turnlog.domain.errors import (
    BindingChangedError,
    ModelUnavailableError,
    ResponsesError,
    ShuttingDownError,
    StorageError,
    StorageUnavailableError,
)
from turnlog.domain.events import FailureReason, Recorded, ResponseCreated
from turnlog.domain.ports import EventJournal, EventReader, Framer
from turnlog.domain.request import TurnRequest
from turnlog.domain.response import Response, fold

log = logging.getLogger("turnlog")


class Background:
    """Queues background turns and sets them running."""

    def __init__(
        self,
        turns: Turns,
        live: LiveTurns,
        journal: EventJournal,
        reader: EventReader,
        new_framer: Callable[[], Framer],
    ) -> None:
        self._turns = turns
        self._live = live
        self._journal = journal
        self._reader = reader
        self._new_framer = new_framer
        self._lines: dict[str, asyncio.Task[None]] = {}
        self._stopped = False
        turns.on_shut_down = self.stop

    async def begin(self, request: TurnRequest, owner: str, *, size_bytes: int = 0) -> Response:
        """Accept a background turn of `owner`; its response, which is stored when this returns.

        Args:
            size_bytes: how long the request was as it was sent.

        Raises:
            StorageUnavailableError: it was not stored in time, and will not run.
            ResponsesError: the turn is refused; nothing has been recorded.
        """
        response, fingerprint = await self._turns.accept(request, owner, size_bytes=size_bytes)
        queued = QueuedTurn(response.created, fingerprint)
        write = asyncio.wrap_future(self._journal.append([Recorded(response.id, 1, response.created)]))
        # Whether or not its client still waits then.
        write.add_done_callback(partial(self._stored, queued))
        try:
            async with asyncio.timeout(chain_write_wait_s()):
                await asyncio.shield(write)
        except TimeoutError:
            queued.cancelled = True
            raise StorageUnavailableError from None
        return response

    def restore(self, created: ResponseCreated) -> None:
        """Queue a turn that an earlier process accepted and did not begin."""
        self._enqueue(QueuedTurn(created, None))

    async def follow(self, queued: QueuedTurn) -> FrameLog:
        """The frames of the turn from its acceptance on, as they come.

        Raises:
            StorageError: the log cannot be read.
        """
        response, _ = await self._read(queued)
        return self._followed(queued, response.created)

    async def cancel(self, queued: QueuedTurn) -> LiveTurn:
        """End a turn before it has begun, or stop it if it just has; its end follows at once.

        Raises:
            StorageError: the log cannot be read, and the turn stays as it is.
        """
        if not queued.cancelled:
            queued.cancelled = True
            try:
                await self._withdraw(queued)
            except BaseException:
                queued.cancelled = False
                raise
        await queued.begun.wait()
        assert queued.turn
        queued.turn.abort("cancelled")
        return queued.turn

    def stop(self) -> None:
        """Begin no more turns; those that have not begun stay queued for the next server."""
        self._stopped = True
        for line in self._lines.values():
            line.cancel()
        for queued in self._live.queued:
            if queued.preparation:
                queued.preparation.cancel()
            queued.break_off()
        self._live.leave_queued()

    def _stored(self, queued: QueuedTurn, write: "asyncio.Future[None]") -> None:
        if write.cancelled() or write.exception() is not None:
            return
        self._enqueue(queued)

    def _enqueue(self, queued: QueuedTurn) -> None:
        self._live.queued.add(queued)
        if queued.model not in self._lines and not self._stopped:
            line = asyncio.create_task(self._run_line(queued.model))
            self._lines[queued.model] = line
            line.add_done_callback(lambda _: self._lines.pop(queued.model))

    async def _run_line(self, model: str) -> None:
        """Set the queued turns of a model running, each when the one before it has a place."""
        while queued := self._live.queued.next(model):
            queued.preparation = asyncio.create_task(self._begin(queued))
            await asyncio.wait((queued.preparation,))
            if queued.turn:
                await queued.turn.left_queue.wait()

    async def _withdraw(self, queued: QueuedTurn) -> None:
        """End a turn that has not begun."""
        if queued.preparation:
            queued.preparation.cancel()
            await asyncio.wait((queued.preparation,))
        if not queued.turn:
            self._live.queued.withdraw(queued)
            accepted = await self._accepted(queued)
            self._has_begun(queued, self._turns.end(accepted, "cancelled"))

    async def _begin(self, queued: QueuedTurn) -> None:
        """Set a turn running, or end it by what stands against that."""
        try:
            await self._resume(queued)
        except ShuttingDownError:
            pass  # the next server runs it
        except StorageError:
            log.exception("[responses] the background turn %s stays queued", queued.response_id)

    async def _resume(self, queued: QueuedTurn) -> None:
        accepted = await self._accepted(queued)
        if queued.cancelled:
            self._has_begun(queued, self._turns.end(accepted, "cancelled"))
            return
        try:
            turn = await self._turns.resume(accepted)
        except (ShuttingDownError, StorageError):
            raise
        except Exception as error:
            turn = self._turns.end(accepted, _reason(error), str(error))
        self._has_begun(queued, turn)

    def _has_begun(self, queued: QueuedTurn, turn: LiveTurn) -> None:
        queued.begin(turn)
        self._live.queued.remove(queued)

    async def _accepted(self, queued: QueuedTurn) -> Accepted:
        response, version = await self._read(queued)
        return Accepted(response, version, self._followed(queued, response.created), queued.fingerprint)

    async def _read(self, queued: QueuedTurn) -> tuple[Response, int]:
        stored = await asyncio.wrap_future(self._reader.events(queued.response_id, owner=queued.owner))
        return fold(recorded.event for recorded in stored), len(stored)

    def _followed(self, queued: QueuedTurn, created: ResponseCreated) -> FrameLog:
        return queued.follow(self._new_framer().receive(created, Response(created)))


def _reason(error: Exception) -> FailureReason:
    """Why a turn cannot run any more."""
    match error:
        case BindingChangedError():
            return "model_changed"
        case ModelUnavailableError():
            return "model_unavailable"
        case ResponsesError():
            return "error"
        case _:
            log.error("[responses] a background turn broke before it began", exc_info=error)
            return "error"
