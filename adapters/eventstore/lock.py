"""One server for one store: a lock on its file, and on a side file that also says how to reach the server.

The locks are the kernel's and end with the process, however that ends. That on the store's file holds under
every name that the file has (a link, a mount). The side file stays: if it were deleted, a second server could
lock a new file of that name while a third still holds the old one.
"""

import fcntl
import os
import secrets
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from turnlog.adapters.eventstore.place import prepare
from turnlog.adapters.private import OWNER_ONLY
from turnlog.domain.errors import StorageError


class Holder(Struct, frozen=True):
    """The server that holds a store: its process and, once it listens, its address and operator token."""

    pid: int
    address: str | None = None
    token: str | None = None


class StoreLock:
    """Held from the moment it is made until `close`. `token` is new at every start.

    It makes the store's file, empty, if there is none. Take it before the store is opened and close it after:
    closing the file ends the locks that SQLite has on it.

    Raises:
        StorageError: another process has it, the file cannot be opened, or no store can be kept there.
    """

    def __init__(self, path: Path) -> None:
        self.token = secrets.token_urlsafe()
        try:
            with ExitStack() as undo:
                prepare(path)
                self._file = os.open(_side_file(path), _SIDE_FILE_FLAGS, OWNER_ONLY)
                undo.callback(os.close, self._file)
                # Before anything is written, for the file may be an old one that others can read.
                os.fchmod(self._file, OWNER_ONLY)
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                store = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                undo.callback(os.close, store)
                _lock_whatever_its_name(store)
                _check_names(path, os.fstat(store).st_nlink)
                self._write(Holder(os.getpid()))
                self._opened = undo.pop_all()
        except BlockingIOError:
            raise StorageError(_in_use(path)) from None
        except OSError as error:
            raise StorageError(f"The event store '{path}' could not be locked: {error}") from error

    def describe(self, address: str) -> None:
        """Say where the server listens; call it once it does."""
        self._write(Holder(os.getpid(), address, self.token))

    def close(self) -> None:
        """Let the store go. The file stays, empty."""
        os.ftruncate(self._file, 0)
        self._opened.close()

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


_SIDE_FILE_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


def _lock_whatever_its_name(store: int) -> None:
    """Lock the file itself, where that does not get in the way of SQLite's own locks.

    On macOS the two kinds of locks exclude each other. There, symbolic links are followed to the side file,
    hard links are refused, and a file cannot be mounted on another.
    """
    if sys.platform == "linux":
        fcntl.flock(store, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _check_names(path: Path, names: int) -> None:
    if names > 1:
        raise StorageError(
            f"The file of the event store '{path}' has {names} names (hard links). SQLite keeps a "
            "write-ahead log for each, so that what is written under one is missing under the other. Remove "
            "all but one."
        )


def _side_file(path: Path) -> Path:
    # Behind symbolic links, so that every way to the store leads to the same lock.
    path = path.resolve()
    return path.with_name(f"{path.name}.lock")


def _in_use(path: Path) -> str:
    server = holder(path)
    who = f"process {server.pid}" if server else "another process"
    where = f", which listens on {server.address}" if server and server.address else ""
    return f"The event store '{path}' is in use by {who}{where}. Only one server can use a store at a time."
