"""How log lines look, what they say of a turn, and what of an exception is never in them."""

import asyncio
import json
import logging
import re
import sqlite3
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from structlog.contextvars import clear_contextvars

from turnlog.app.operations.logs import FewAMinute, LogFormat, log_loop_failure, set_up_logs, turn_context
from turnlog.domain.budgets import Budget
from turnlog.domain.errors import ChainReadError, EngineError, InvalidRequestError, StorageError

CANARY = "canary-7f3a"

log = logging.getLogger("turnlog")


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """Leaves logging as it was: it belongs to the whole process."""
    root = logging.getLogger()
    handlers, levels = root.handlers[:], {name: logging.getLogger(name).level for name in _LOGGERS}
    clear_contextvars()
    yield
    clear_contextvars()
    root.handlers[:] = handlers
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


_LOGGERS = ("", "turnlog", "adapters", "app")


def logging_to_text(log_format: LogFormat, level: str = "info") -> StringIO:
    """What is logged from now on."""
    stream = StringIO()
    set_up_logs(log_format, level, stream)
    return stream


def only_line(stream: StringIO) -> dict[str, Any]:
    """The one JSON line that was logged, without its time."""
    (line,) = stream.getvalue().splitlines()
    told: dict[str, Any] = json.loads(line)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", told.pop("timestamp"))
    return told


def test_a_line_as_json_is_one_object() -> None:
    stream = logging_to_text("json")

    log.info("[http] %s\n%s", "GET", "/x", extra={"status": 200, "secret": CANARY})

    assert only_line(stream) == {"event": "[http] GET\n/x", "level": "info", "status": 200}


def test_a_line_as_text_begins_with_its_time_and_stays_one_line() -> None:
    """What is quoted can neither look like a line of its own nor move a terminal's cursor."""
    stream = logging_to_text("text")

    log.warning("[responses] said %s", "a\r\nb\x1b[2Jc\u2028d\x85e")

    (line,) = stream.getvalue().splitlines()
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \[warning", line)
    assert r"[responses] said a\r\nb\x1b[2Jc\u2028d\x85e" in line


def test_the_lines_of_a_turn_and_of_what_it_starts_say_which_turn_it_is() -> None:
    """Its tasks and callbacks; and no line of anybody else."""
    stream = logging_to_text("json")

    async def of_the_turn() -> None:
        log.info("a task")

    async def turn(name: str) -> None:
        turn_context(f"resp_{name}", name)
        asyncio.get_running_loop().call_soon(log.info, "a callback")
        await asyncio.create_task(of_the_turn())

    async def serve() -> None:
        await asyncio.gather(asyncio.create_task(turn("ada")), asyncio.create_task(turn("bob")))
        log.info("the server")

    asyncio.run(serve())

    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    told = [(line["event"], line.get("response_id"), line.get("owner")) for line in lines]
    assert sorted(told[:-1]) == [
        ("a callback", "resp_ada", "ada"),
        ("a callback", "resp_bob", "bob"),
        ("a task", "resp_ada", "ada"),
        ("a task", "resp_bob", "bob"),
    ]
    assert told[-1] == ("the server", None, None)


def quoting() -> None:
    """What a decoder does that is given the canary."""
    raise KeyError(CANARY)


def in_json(error: BaseException) -> dict[str, Any]:
    """The line of an exception that was caught, as JSON."""
    stream = logging_to_text("json")
    log.error("[responses] it failed", exc_info=error)
    return only_line(stream)


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_an_exception_is_told_without_what_it_quotes(log_format: LogFormat) -> None:
    """Nor what the exceptions behind it quote; where they were raised is told of each."""
    stream = logging_to_text(log_format)

    try:
        try:
            quoting()
        except KeyError as error:
            raise InvalidRequestError(CANARY) from error
    except InvalidRequestError:
        log.exception("[responses] it failed")

    told = stream.getvalue()
    assert CANARY not in told
    for part in (
        "in quoting",
        "KeyError (its message is not logged)",
        "which led to:",
        "InvalidRequestError",
    ):
        assert part in told
    assert told.index("in quoting") < told.index("which led to:") < told.index("InvalidRequestError (its")


def test_an_exception_that_was_put_out_of_sight_stays_there() -> None:
    """One that another replaced on purpose, by `from None`."""
    try:
        try:
            quoting()
        except KeyError:
            raise ValueError from None
    except ValueError as error:
        told = in_json(error)["exception"]

    assert told.endswith("ValueError (its message is not logged)")
    assert "KeyError" not in told


@pytest.mark.parametrize(
    "error",
    [
        StorageError("the disk is full"),
        EngineError("no model there"),
        OSError(28, "No space left on device"),
        sqlite3.OperationalError("database is locked"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_that_is_known_to_be_harmless_says_what_it_is(error: Exception) -> None:
    told = in_json(error)["exception"]

    assert told.endswith(f"{type(error).__name__}: {error}")


def test_a_storage_error_that_quotes_the_client_does_not() -> None:
    """The id of a chain is whatever the client wrote."""
    told = in_json(ChainReadError(CANARY, KeyError(CANARY)))["exception"]

    assert CANARY not in told
    assert told.endswith("domain.errors.ChainReadError (its message is not logged)")


async def test_what_nobody_waited_for_is_told_without_what_it_quotes() -> None:
    """The event loop's own handler would quote the exception."""
    stream = logging_to_text("json")
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(log_loop_failure)

    loop.call_soon(quoting)
    await asyncio.sleep(0)

    told = only_line(stream)
    assert CANARY not in json.dumps(told)
    assert told["event"].startswith("[loop] Exception in callback")
    assert told["exception"].endswith("KeyError (its message is not logged)")


@pytest.mark.parametrize(
    ("level", "told"),
    [("debug", ["a", "b", "c", "d"]), ("info", ["b", "c", "d"]), ("error", ["d"])],
)
def test_the_level_is_that_of_turnlogs_own_lines(level: str, told: list[str]) -> None:
    """Of other libraries nothing below a warning is heard."""
    stream = logging_to_text("json", level)

    log.debug("a")
    logging.getLogger("turnlog.adapters.mlx.engine").info("b")
    logging.getLogger("litestar").info("not heard")
    logging.getLogger("turnlog.app.prefix_cache").warning("c")
    log.error("d")

    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == told


def test_strangers_write_so_many_lines_a_minute_and_the_rest_is_counted() -> None:
    """Garbage costs a sender nothing, so a line each would fill the disk."""
    stream = logging_to_text("json")
    now_s = 0.0
    budget = Budget("lines", 2)
    strangers = logging.Logger("turnlog.strangers", logging.INFO)
    strangers.parent = log
    strangers.addFilter(FewAMinute(budget, lambda: now_s))

    for number in range(5):
        strangers.info("line %d", number)
    in_use = budget.in_use()
    now_s = 60.0
    strangers.info("line 5")

    told = [json.loads(line)["event"] for line in stream.getvalue().splitlines()]
    left_out = "[http] 3 more lines about requests without a key are left out"
    assert told == ["line 0", "line 1", left_out, "line 5"]
    assert (in_use, budget.reached, budget.in_use()) == (2, 3, 1)
