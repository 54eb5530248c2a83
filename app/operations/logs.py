"""How log lines look, and what is never in them: content.

Modules log by the standard library; here their lines become text for people or JSON for a collector. Who runs
a turn calls `turn_context` first: its lines, and those of the tasks and callbacks it starts, then carry the
response's id and owner. Exceptions are shown without their messages, unless those are known to be harmless:
what a `KeyError` or a decoder says may quote a client or a model.
"""

import asyncio
import logging
import re
import sqlite3
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from typing import IO, Any, Literal

from structlog.contextvars import bind_contextvars, merge_contextvars
from structlog.dev import ConsoleRenderer, plain_traceback
from structlog.processors import ExceptionRenderer, JSONRenderer, TimeStamper
from structlog.stdlib import ExtraAdder, ProcessorFormatter, add_log_level
from structlog.typing import EventDict, ExcInfo, Processor

from turnlog.app.operations.line_queue import LineQueue
from turnlog.domain.budgets import Budget
from turnlog.domain.errors import ChainReadError, EngineError, IllegalTransitionError, StorageError

LogFormat = Literal["text", "json"]

log = logging.getLogger("turnlog")

_OWN = ("turnlog", "adapters", "app")
"""Where turnlog's own loggers begin; others are heard from WARNING on."""

_HARMLESS = (StorageError, EngineError, IllegalTransitionError, OSError, sqlite3.Error)
_QUOTING = (ChainReadError,)

_FIELDS = ("request_id", "status", "duration_ms", "response_id", "owner", "code", "param")
"""What a line may bring by `extra`."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


STRANGER_LINES = Budget("stranger_log_lines", 60)
"""Lines a minute about what comes from nobody that is known; whoever can connect can cause them."""

_strangers = logging.getLogger("turnlog.strangers")


class FewAMinute(logging.Filter):
    """Lets so many lines of a logger through in a minute; the first of the next one says what is missing."""

    def __init__(self, budget: Budget, clock_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._budget = budget
        self._clock_s = clock_s
        self._minute = 0
        self._lines = 0
        budget.in_use = lambda: min(self._lines, budget.limit)

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether there is room for another line."""
        minute = int(self._clock_s() // 60)
        if minute != self._minute:
            left_out = max(0, self._lines - int(self._budget.limit))
            self._minute, self._lines = minute, 0
            if left_out:
                log.info("[http] %d more lines about requests without a key are left out", left_out)
        self._lines += 1
        if self._lines > self._budget.limit:
            self._budget.reach()
            return False
        return True


def set_up_logs(log_format: LogFormat, level: str, stream: IO[str] | LineQueue | None = None) -> None:
    """Send this process's lines to `stream`, stderr by default: as JSON, or as text, coloured on a terminal.

    Args:
        level: the least level of turnlog's own lines.
    """
    stream = stream or sys.stderr
    as_json = log_format == "json"
    before: list[Processor] = [
        merge_contextvars,
        add_log_level,
        ExtraAdder(allow=_FIELDS),
        TimeStamper(fmt="iso") if as_json else TimeStamper(fmt="%Y-%m-%d %H:%M:%S", utc=False),
        ExceptionRenderer(exception_text),
    ]
    last: list[Processor] = (
        [JSONRenderer()]
        if as_json
        else [
            _on_one_line,
            ConsoleRenderer(colors=stream.isatty(), pad_event_to=0, exception_formatter=plain_traceback),
        ]
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        ProcessorFormatter(
            foreign_pre_chain=before, processors=[ProcessorFormatter.remove_processors_meta, *last]
        )
    )
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    if not _strangers.filters:
        _strangers.addFilter(FewAMinute(STRANGER_LINES))
    for name in _OWN:
        logging.getLogger(name).setLevel(level.upper())


def turn_context(response_id: str, owner: str) -> None:
    """From here on the lines of this task, and of what it starts, say which turn they are about."""
    bind_contextvars(response_id=response_id, owner=owner)


def log_loop_failure(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """The event loop's exception handler; its own one would quote the exception."""
    log.error("[loop] %s", context["message"], exc_info=context.get("exception"))


def exception_text(exc_info: ExcInfo) -> str:
    """The traceback of an exception and of those behind it, without messages that may be content."""
    blocks = ["".join(_block(error)) for error in _causes(exc_info[1])]
    return "\n\nwhich led to:\n\n".join(reversed(blocks))


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _block(error: BaseException) -> Iterator[str]:
    yield "Traceback (most recent call last):\n"
    yield from traceback.format_tb(error.__traceback__)
    kind = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
    harmless = isinstance(error, _HARMLESS) and not isinstance(error, _QUOTING)
    yield f"{kind}: {error}" if harmless else f"{kind} (its message is not logged)"


def _on_one_line(_: Any, __: str, line: EventDict) -> EventDict:
    """Nothing that is quoted in a line may look like another line, or move a terminal's cursor."""
    line["event"] = _CONTROL.sub(lambda found: repr(found[0])[1:-1], str(line["event"]).rstrip("\n"))
    return line
