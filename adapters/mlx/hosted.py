"""Set-up of a process that the server has spawned, so that it dies with the server."""

import ctypes
import faulthandler
import logging
import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from traceback import extract_tb
from typing import Any

from turnlog.adapters.engine_process.channel import Channel, Received

_PR_SET_PDEATHSIG = 1
_OOM_SCORE = "500"


def connected(receives: type[Received]) -> Channel[Received]:
    """The channel to the server, by the arguments that `SpawnedProcess` gives. Call it first of all."""
    descriptor, server = map(int, sys.argv[1:])
    _die_with(server)
    # A terminal's Ctrl-C and a supervisor's SIGTERM are for the server, which then ends this process.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    # Not of all threads: while others run, that can end in another fault.
    faulthandler.enable(all_threads=False)
    with suppress(OSError):
        # If the OOM killer must end a process, then rather this one than the server.
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE)
    # transformers greets those who have no PyTorch.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    # The last words of the process have room for what happened, not for where in Rust.
    os.environ["RUST_BACKTRACE"] = "0"
    return Channel(socket.socket(fileno=descriptor), receives)


def described(record: logging.LogRecord) -> str:
    """A log record in one line. Of an exception only kind and place: its message may hold content."""
    line = record.getMessage()
    if record.exc_info and record.exc_info[0]:
        kind, _, trace = record.exc_info
        frames = extract_tb(trace)
        place = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
        line += f" ({kind.__name__}{place})"
    return line


def _die_with(server: int) -> None:
    """Have the kernel end this process when the server has ended. Elsewhere the socket's end does it."""
    if sys.platform != "linux":
        return
    libc: Any = ctypes.CDLL(None)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != server:
        # It had ended before.
        os._exit(0)
