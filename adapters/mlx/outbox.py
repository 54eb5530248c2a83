"""The outputs of a batch's step, delivered together at its end."""

import logging
from collections.abc import Callable

from turnlog.domain.ports import Deliver, EngineOutput

_log = logging.getLogger(__name__)


class Outbox:
    """Collects the outputs of a step, so that the receiver wakes up once.

    Args:
        delivered: called when those of a step have been delivered.
    """

    def __init__(self, delivered: Callable[[], None] = lambda: None) -> None:
        self._delivered = delivered
        self._outputs: list[tuple[Deliver, EngineOutput]] = []

    def put(self, deliver: Deliver, output: EngineOutput) -> None:
        """Collect an output of a turn."""
        self._outputs.append((deliver, output))

    def deliver(self) -> None:
        """Deliver all collected outputs, in order."""
        outputs, self._outputs = self._outputs, []
        for deliver, output in outputs:
            try:
                deliver(output)
            except Exception:
                # A failing receiver must not affect the other turns of the batch.
                _log.exception("an output could not be delivered")
        if outputs:
            self._delivered()
