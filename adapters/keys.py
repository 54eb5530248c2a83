"""The API keys of a log: a file of hashes beside it, and the ring of keys that a running server accepts.

A file and not a table in the log: a key can be made while a server has the log, and no copy of the log
carries it (decision 12).
"""

import fcntl
import hashlib
import hmac
import logging
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from turnlog.adapters.private import OWNER_ONLY, make_folders
from turnlog.domain.errors import InvalidRequestError, NotFoundError, StorageError
from turnlog.domain.owners import Caller, Role, is_owner_name

log = logging.getLogger("turnlog")

KEY_PREFIX = "tl_"
"""What every key begins with, so that people and scanners know one when they see it."""

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class Key(Struct, frozen=True, forbid_unknown_fields=True):
    """What is kept of a key: all but the key."""

    id: str
    owner: str
    role: Role
    made_s: int
    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class _Kept(Struct, frozen=True, forbid_unknown_fields=True):
    keys: tuple[Key, ...]


def digest(text: str) -> str:
    """What is kept of the key `text`. Keys are 256 random bits, so no slow hash is needed."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


class KeyFile:
    """The keys of the log `database`, oldest first, in a file beside it that its owner alone can read."""

    def __init__(self, database: Path) -> None:
        # Behind symbolic links, so that every way to the log leads to the same keys.
        database = database.resolve()
        self.path = database.with_name(f"{database.name}.keys")

    def read(self) -> tuple[Key, ...] | None:
        """The keys; none if all are revoked, and None if there never was one.

        Raises:
            StorageError: the file cannot be read, is damaged, or is not safe from others.
        """
        # Not to wait for a writer, should somebody have put a pipe there.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            with os.fdopen(os.open(self.path, flags), "rb") as file:
                state = os.fstat(file.fileno())
                content = file.read() if stat.S_ISREG(state.st_mode) else b""
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageError(f"The keys in '{self.path}' could not be read: {error.strerror}") from error
        if state.st_uid not in (os.geteuid(), 0):
            raise StorageError(
                f"'{self.path}' is another user's ({state.st_uid}), who could add keys. Run 'chown' on it."
            )
        if state.st_mode & _OTHERS_WRITE:
            raise StorageError(f"'{self.path}' is writable by others. Run 'chmod go-w' on it.")
        try:
            keys = msgspec.json.decode(content, type=_Kept).keys
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise StorageError(f"The keys in '{self.path}' are damaged: {error}") from error
        # A request without a key is looked up as an empty one, which nobody may have.
        if any(not is_owner_name(key.owner) or key.sha256 == digest("") for key in keys):
            raise StorageError(f"The keys in '{self.path}' are damaged: one has no owner or is empty")
        return keys

    def add(self, owner: str, role: Role, *, now_s: int) -> tuple[Key, str]:
        """Make a key.

        Returns:
            What is kept of it, and the key, which is not.

        Raises:
            InvalidRequestError: an owner cannot be called that.
            StorageError: the file cannot be read or written.
        """
        if not is_owner_name(owner):
            raise InvalidRequestError(
                f"Invalid owner '{owner}': expected 1 to 64 letters, digits and ._@+-, "
                "beginning with a letter or digit."
            )
        text = KEY_PREFIX + secrets.token_urlsafe(32)
        key = Key(f"key_{secrets.token_hex(4)}", owner, role, now_s, digest(text))
        with self._changing() as keys:
            self._write((*keys, key))
        return key, text

    def revoke(self, key_id: str) -> tuple[Key, int]:
        """Take a key out.

        Returns:
            What was kept of it, and how many keys are left.

        Raises:
            NotFoundError: there is no such key.
            StorageError: the file cannot be read or written.
        """
        with self._changing() as keys:
            revoked = next((key for key in keys if key.id == key_id), None)
            if revoked is None:
                raise NotFoundError(f"Key '{key_id}' not found. List keys with 'turnlog keys list'.")
            left = tuple(key for key in keys if key.id != key_id)
            # Also without a key in it the file stays: it says that keys are in use.
            self._write(left)
        return revoked, len(left)

    def signature(self) -> tuple[int, ...] | None:
        """What differs when the file was changed; None if there is no file. Costs one look, no reading."""
        try:
            state = os.lstat(self.path)
        except FileNotFoundError:
            return None
        except OSError:
            return ()  # nobody can tell; to read it says why
        return state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns

    @contextmanager
    def _changing(self) -> Iterator[tuple[Key, ...]]:
        """The keys, while nobody else changes them."""
        try:
            make_folders(self.path.parent)
            # On the folder, for the file is replaced while it is held.
            folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise StorageError(f"The keys in '{self.path}' could not be changed: {error.strerror}") from error
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield self.read() or ()
            os.fsync(folder)
        except OSError as error:
            raise StorageError(f"The keys in '{self.path}' could not be changed: {error.strerror}") from error
        finally:
            os.close(folder)

    def _write(self, keys: tuple[Key, ...]) -> None:
        """Replace the file at one stroke: whoever reads it sees the old keys or the new ones."""
        new = self.path.with_name(f"{self.path.name}.new")
        with suppress(FileNotFoundError):
            new.unlink()  # left by a process that was killed
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(new, flags, OWNER_ONLY), "wb") as file:
            os.fchmod(file.fileno(), OWNER_ONLY)  # the umask may have taken more away
            file.write(msgspec.json.encode(_Kept(keys)) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.path)


class KeyRing:
    """The keys a running server accepts (`app.access.Keys`). It follows every change of the file.

    Args:
        file: None for a log that has no keys.

    Raises:
        StorageError: the keys cannot be read.
    """

    def __init__(self, file: KeyFile | None) -> None:
        self._file = file
        # Before the keys, so that a change in between is seen at the next use.
        self._signature = file.signature() if file else None
        kept = file.read() if file else None
        self._in_use = kept is not None
        self._accept(kept or ())

    @property
    def in_use(self) -> bool:
        """Whether a caller must have a key. Once true, it stays so, whatever becomes of the file."""
        self._refresh()
        return self._in_use

    def find(self, text: str) -> Caller | None:
        """Who has the key `text`; None if nobody. It takes the same work for every text of one length."""
        self._refresh()
        sent = digest(text)
        found = None
        for key in self._keys:
            if hmac.compare_digest(key.sha256, sent):
                found = key
        return Caller(found.owner, frozenset({found.role}), found.id) if found else None

    @property
    def is_shared(self) -> bool:
        """Whether there are keys of several owners."""
        self._refresh()
        return self._is_shared

    def holds(self, key_id: str) -> bool:
        """Whether the key of that id is still accepted."""
        self._refresh()
        return any(key.id == key_id for key in self._keys)

    def _refresh(self) -> None:
        """Read the file again if it was changed; if it cannot be read, accept no key."""
        signature = self._file.signature() if self._file else None
        if self._file is None or signature == self._signature:
            return
        self._signature = signature
        self._in_use = True
        self._accept(())
        try:
            kept = self._file.read()
        except StorageError as error:
            log.error("%s. Rejecting every request until this is fixed.", error)  # noqa: TRY400 - no bug
            return
        if kept is None:
            log.error(
                "The keys in '%s' are gone. Rejecting every request until you add one.", self._file.path
            )
        self._accept(kept or ())

    def _accept(self, keys: tuple[Key, ...]) -> None:
        self._keys = keys
        self._is_shared = len({key.owner for key in keys}) > 1
