"""Stops turns because somebody asks for it, queued or running (D-40)."""

from turnlog.app.settings import chain_write_wait_s
from turnlog.app.turns.background import Background
from turnlog.app.turns.live import LiveTurn
from turnlog.app.turns.live_turns import LiveTurns


class Cancellation:
    """Cancels the turns of one server."""

    def __init__(self, live: LiveTurns, background: Background) -> None:
        self._live = live
        self._background = background

    async def cancel(self, response_id: str, owner: str | None) -> LiveTurn | None:
        """Stop a turn of `owner`, anybody's if that is None; the turn at its end, which is stored by then.

        None if it is neither queued nor running: it has ended, or is not there.

        Raises:
            StorageError: the turn is queued and cannot be read.
        """
        if queued := self._live.queued.of(response_id, owner):
            turn = await self._background.cancel(queued)
        elif live := self._live.of(response_id, owner):
            turn = live
            turn.abort("cancelled")
        else:
            return None
        await turn.ended.wait()
        if turn.response.created.store:
            # Else a server that is killed now would begin a queued turn again.
            await turn.until_settled(chain_write_wait_s())
        return turn
