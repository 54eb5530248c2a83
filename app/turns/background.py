"""Background turns: stored when they are accepted, run when no other turn wants the slot (D-40).

One turn per model and owner is prepared and waits for a slot; the others are ids in a queue.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from turnlog.app.settings import chain_write_wait_s
from turnlog.app.turns.accept import Accepted, Turns
from turnlog.app.turns.live import FrameLog, LiveTurn
from turnlog.app.turns.live_turns import LiveTurns
from turnlog.app.turns.queued_turns import Line, QueuedTurn
from turnlog.domain.errors import (
    BindingChangedError,
    ModelUnavailableError,
    ResponsesError,
    ShuttingDownError,
    StorageError,
    StorageUnavailableError,
    UnavailableError,
)
from turnlog.domain.events import Recorded, ResponseCreated
from turnlog.domain.ports import EventJournal, EventReader, Framer
from turnlog.domain.request import TurnRequest
from turnlog.domain.response import Response, fold

log = logging.getLogger("turnlog")


RETRY_S = 5.0
"""After how long a turn is tried again that could not begin for a passing reason, such as a slow read."""


class Background:
    """Queues background turns and starts them."""

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
        self._lines: dict[Line, asyncio.Task[None]] = {}
        self._stopped = False
        turns.on_shut_down = self.stop

    async def begin(self, request: TurnRequest, owner: str, *, size_bytes: int = 0) -> Response:
        """Accept a background turn of `owner`; its response, which is stored when this returns.

        Args:
            size_bytes: the size of the request's body.

        Raises:
            StorageUnavailableError: it was not stored in time, and will not run.
            ResponsesError: the turn is refused; nothing has been recorded.
        """
        response, fingerprint = await self._turns.accept(request, owner, size_bytes=size_bytes)
        queued = QueuedTurn(response.created, fingerprint)
        write = asyncio.wrap_future(self._journal.append([Recorded(response.id, 1, response.created)]))
        # Queued when the write lands, even if the client has left by then.
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
        """Start no more turns; those that have not started stay queued for the next server."""
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
        if queued.line not in self._lines and not self._stopped:
            self._lines[queued.line] = asyncio.create_task(self._run_line(queued.line))

    async def _run_line(self, line: Line) -> None:
        """Start the queued turns of a model and owner, each once the one before it has its slot."""
        while queued := self._live.queued.next(line):
            queued.preparation = asyncio.create_task(self._begin(queued))
            await asyncio.wait((queued.preparation,))
            if queued.turn:
                await queued.turn.left_queue.wait()
        # In the same step that found the queue empty: a turn that is queued later starts a new line.
        del self._lines[line]

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
        """Start a turn, or end it if it cannot run any more."""
        try:
            await self._resume(queued)
        except ShuttingDownError:
            pass  # the next server runs it
        except (StorageError, UnavailableError) as error:
            log.warning(
                "[responses] the background turn %s is tried again: %s", queued.response_id, error.code
            )
            asyncio.get_running_loop().call_later(RETRY_S, self._try_again, queued)

    def _try_again(self, queued: QueuedTurn) -> None:
        if not queued.cancelled:
            self._enqueue(queued)

    async def _resume(self, queued: QueuedTurn) -> None:
        accepted = await self._accepted(queued)
        if queued.cancelled:
            self._has_begun(queued, self._turns.end(accepted, "cancelled"))
            return
        try:
            turn = await self._turns.resume(accepted)
        except ModelUnavailableError as unavailable:
            turn = self._turns.end(accepted, "model_unavailable", unavailable.message)
        except BindingChangedError as changed:
            turn = self._turns.end(accepted, "model_changed", changed.message)
        except (StorageError, UnavailableError):
            raise
        except ResponsesError as refusal:
            turn = self._turns.end(accepted, "error", refusal.message)
        except Exception as error:
            log.exception("[responses] the background turn %s failed unexpectedly", queued.response_id)
            turn = self._turns.end(accepted, "error", str(error))
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
