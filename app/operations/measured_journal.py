"""A journal that measures how long its writes take, and passes everything on."""

import time
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial

from turnlog.app.operations.metrics import Metrics
from turnlog.domain.errors import ResponsesError
from turnlog.domain.events import Recorded
from turnlog.domain.ports import EventJournal


class MeasuredJournal:
    """The `EventJournal` behind it, with each append's time told to the metrics on the writer thread."""

    def __init__(self, journal: EventJournal, metrics: Metrics) -> None:
        self._journal = journal
        self._metrics = metrics

    def append(self, events: Sequence[Recorded]) -> Future[None]:
        """See `EventJournal.append`."""
        began_s = time.monotonic()
        write = self._journal.append(events)
        write.add_done_callback(partial(self._settled, began_s))
        return write

    def close(self) -> None:
        """Close the journal behind."""
        self._journal.close()

    def _settled(self, began_s: float, write: Future[None]) -> None:
        if (error := write.exception()) is None:
            self._metrics.written(time.monotonic() - began_s)
        else:
            self._metrics.write_failed(error.code if isinstance(error, ResponsesError) else "server_error")
