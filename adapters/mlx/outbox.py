"""What the turns of a batch say in one step, delivered together at its end."""

import logging
from collections.abc import Callable

from turnlog.domain.ports import Deliver, EngineOutput

_log = logging.getLogger(__name__)


class Outbox:
    """Keeps outputs until all of a step are there, so that whoever takes them wakes up once.

    Args:
        delivered: called when those of a step have been given away.
    """

    def __init__(self, delivered: Callable[[], None] = lambda: None) -> None:
        self._delivered = delivered
        self._outputs: list[tuple[Deliver, EngineOutput]] = []

    def put(self, deliver: Deliver, output: EngineOutput) -> None:
        """Keep an output of a turn."""
        self._outputs.append((deliver, output))

    def deliver(self) -> None:
        """Give all that was kept to whoever waits for it, in order."""
        outputs, self._outputs = self._outputs, []
        for deliver, output in outputs:
            try:
                deliver(output)
            except Exception:
                # Whoever takes the outputs may break; the other turns of the batch must not suffer for it.
                _log.exception("an output could not be delivered")
        if outputs:
            self._delivered()
