"""The hooks of every turn: log context, idle sweeper and metrics."""

from turnlog.app.models.idle import IdleSweeper
from turnlog.app.operations.logs import turn_context
from turnlog.app.operations.metrics import Metrics
from turnlog.domain.events import ResponseCreated
from turnlog.domain.response import Response


class Hooks:
    """The `TurnHooks` of a service; called in the turn's own task."""

    def __init__(self, metrics: Metrics, idle: IdleSweeper) -> None:
        self._metrics = metrics
        self._idle = idle

    def began(self, created: ResponseCreated) -> None:
        """A turn was accepted; from here on its lines say which one it is (R-376)."""
        turn_context(created.response_id, created.owner)
        self._idle.begin()

    def ended(self, response: Response) -> None:
        """The turn has left its lane; its write is not waited for (R-378, R-380)."""
        self._idle.end()
        if response.ended:  # else its task was cancelled, and the next start of a server ends it
            self._metrics.turn_ended(response)
