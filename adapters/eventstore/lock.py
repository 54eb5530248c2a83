"""One server for one store: a lock on a side file, which also says how to reach the server.

The lock is the kernel's and ends with the process, however that ends. The file stays: if it were deleted,
a second server could lock a new file of that name while a third still holds the old one.
"""

import fcntl
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from turnlog.domain.errors import StorageError

_OWNER_ONLY = stat.S_IRUSR | stat.S_IWUSR


class Holder(Struct, frozen=True):
    """The server that holds a store: its process and, once it listens, its address and operator token."""

    pid: int
    address: str | None = None
    token: str | None = None


class StoreLock:
    """Held from the moment it is made until `close`. `token` is new at every start.

    Raises:
        StorageError: another process has it, or the side file cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.token = secrets.token_urlsafe()
        side_file = _side_file(path)
        try:
            side_file.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            self._file = os.open(side_file, flags, _OWNER_ONLY)
        except OSError as error:
            raise StorageError(f"The event store '{path}' could not be locked: {error}") from error
        try:
            # Before anything is written, for the file may be an old one that others can read.
            os.fchmod(self._file, _OWNER_ONLY)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._write(Holder(os.getpid()))
        except OSError as error:
            os.close(self._file)
            if isinstance(error, BlockingIOError):
                raise StorageError(_in_use(path)) from None
            raise StorageError(f"The event store '{path}' could not be locked: {error}") from error

    def describe(self, address: str) -> None:
        """Say where the server listens; call it once it does."""
        self._write(Holder(os.getpid(), address, self.token))

    def close(self) -> None:
        """Let the store go. The file stays, empty."""
        os.ftruncate(self._file, 0)
        os.close(self._file)

    def _write(self, holder: Holder) -> None:
        line = msgspec.json.encode(holder) + b"\n"
        os.pwrite(self._file, line, 0)
        os.ftruncate(self._file, len(line))


def holder(path: Path) -> Holder | None:
    """The server that has the store, as it describes itself.

    None if there is none or it does not say; a server that was killed may still be named.
    """
    with suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode(_side_file(path).read_bytes(), type=Holder)
    return None


def _side_file(path: Path) -> Path:
    # Behind symbolic links, so that every way to the store leads to the same lock.
    path = path.resolve()
    return path.with_name(f"{path.name}.lock")


def _in_use(path: Path) -> str:
    server = holder(path)
    who = f"process {server.pid}" if server else "another process"
    where = f", which listens on {server.address}" if server and server.address else ""
    return f"The event store '{path}' is in use by {who}{where}. Only one server can use a store at a time."
