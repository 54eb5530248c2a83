"""How far an export in a file has got, so that it can be gone on with, also after it was cut off."""

from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec import Struct

from turnlog.adapters.eventstore.transfer import EndLine, Header, Line
from turnlog.domain.errors import StorageError

_STEP_BYTES = 64 * 1024


class Reached(Struct, frozen=True):
    """Up to which position the file tells the log, and of which time.

    `whole_bytes` is how long the file is without a line that was cut off. `complete` is whether its last pass
    came to its end.
    """

    position: int
    complete: bool
    whole_bytes: int
    since_ms: int | None
    until_ms: int | None


def reached(path: Path) -> Reached:
    """How far the export in the file has got.

    Raises:
        StorageError: the file is no export, or cannot be read.
    """
    try:
        with path.open("rb") as file:
            header = _decode(path, file.readline())
            if not isinstance(header, Header):
                raise _no_export(path)
            whole_bytes, last = _last_whole_line(file)
    except OSError as error:
        raise StorageError(f"'{path}' could not be read: {error}") from error
    line = _decode(path, last)
    position = line.after if isinstance(line, Header) else line.position
    complete = isinstance(line, EndLine)
    return Reached(position, complete, whole_bytes, header.since_ms, header.until_ms)


def _last_whole_line(file: BinaryIO) -> tuple[int, bytes]:
    """The bytes up to the end of the last whole line, and that line. The first line must be whole."""
    end = file.seek(0, 2)
    tail, start = b"", end
    # Backwards, for an export may have gigabytes; until there is a line with another one before it.
    while start and tail[: tail.rfind(b"\n") + 1].count(b"\n") < 2:
        step = min(_STEP_BYTES + len(tail), start)
        start = file.seek(start - step)
        tail = file.read(step) + tail
    whole = tail[: tail.rfind(b"\n") + 1]
    return start + len(whole), whole[whole.rfind(b"\n", 0, -1) + 1 :]


def _decode(path: Path, line: bytes) -> Line:
    try:
        if line.endswith(b"\n"):
            return msgspec.json.decode(line, type=Line)
    except msgspec.MsgspecError as error:
        raise _no_export(path) from error
    raise _no_export(path)


def _no_export(path: Path) -> StorageError:
    return StorageError(f"'{path}' is no export of turnlog.")
