"""A store has one server, and whoever comes second learns who that is."""

import os
import stat
from contextlib import closing
from pathlib import Path

import pytest

from tests.adapters.eventstore.locker import run
from turnlog.adapters.eventstore.lock import Holder, StoreLock, holder
from turnlog.domain.errors import StorageError

_SERVER = """
import sys
from pathlib import Path
from turnlog.adapters.eventstore.lock import StoreLock
lock = StoreLock(Path(sys.argv[1]))
lock.describe("http://127.0.0.1:8000")
print(lock.token, flush=True)
sys.stdin.read()
"""


def test_a_second_server_is_told_which_one_has_the_store(path: Path) -> None:
    with closing(StoreLock(path)) as lock:
        with pytest.raises(StorageError) as starting:
            StoreLock(path)
        lock.describe("http://127.0.0.1:8000")
        with pytest.raises(StorageError) as listening:
            StoreLock(path)

    one = "Only one server can use a store at a time."
    in_use = f"The event store '{path}' is in use by process {os.getpid()}"
    assert starting.value.message == f"{in_use}. {one}"
    assert listening.value.message == f"{in_use}, which listens on http://127.0.0.1:8000. {one}"


def test_another_process_is_named_and_its_end_frees_the_store(path: Path) -> None:
    with run(_SERVER, path) as token:
        server = holder(path)
        with pytest.raises(StorageError, match=f"in use by process {server and server.pid}, which listens"):
            StoreLock(path)

    assert server
    assert (server.address, server.token) == ("http://127.0.0.1:8000", token)
    # It did not close its lock, as one that is killed does not: the name stays, the lock does not.
    assert holder(path) == server
    StoreLock(path).close()


def test_who_lets_the_store_go_leaves_an_empty_file_that_only_its_owner_reads(path: Path) -> None:
    lock = StoreLock(path)
    lock.describe("http://127.0.0.1:8000")
    told = holder(path)
    lock.close()

    side_file = path.with_name("turnlog.db.lock")
    assert told == Holder(os.getpid(), "http://127.0.0.1:8000", lock.token)
    assert (holder(path), side_file.read_bytes()) == (None, b"")
    assert stat.S_IMODE(side_file.stat().st_mode) == 0o600


def test_a_token_is_new_at_every_start_and_is_not_told_to_others(path: Path) -> None:
    side_file = path.with_name("turnlog.db.lock")
    side_file.write_text("x" * 1000)
    side_file.chmod(0o644)

    with closing(StoreLock(path)) as lock:
        mode = stat.S_IMODE(side_file.stat().st_mode)
        starting = holder(path)
    with closing(StoreLock(path)) as next_lock:
        tokens = {lock.token, next_lock.token}

    assert (mode, starting, len(tokens)) == (0o600, Holder(os.getpid()), 2)


def test_every_way_to_the_store_leads_to_one_lock(path: Path) -> None:
    link = path.with_name("link.db")
    link.symlink_to(path)

    with closing(StoreLock(path)), pytest.raises(StorageError, match="in use by process"):
        StoreLock(link)


def test_a_hard_link_leads_to_the_same_lock(path: Path) -> None:
    """The side file goes by the name, the lock on the store's file does not."""
    link = path.with_name("link.db")

    with closing(StoreLock(path)):
        link.hardlink_to(path)
        with pytest.raises(StorageError, match=r"in use by another process|has 2 names"):
            StoreLock(link)


def test_a_store_has_one_name(path: Path) -> None:
    """SQLite keeps a write-ahead log for each name, so changes under one are missing under the other."""
    path.touch()
    path.with_name("link.db").hardlink_to(path)

    with pytest.raises(StorageError, match=r"has 2 names \(hard links\).*Remove all but one"):
        StoreLock(path)


def test_a_side_file_that_leads_elsewhere_is_not_followed(path: Path) -> None:
    elsewhere = path.with_name("elsewhere")
    path.with_name("turnlog.db.lock").symlink_to(elsewhere)

    with pytest.raises(StorageError, match=f"^The event store '{path}' could not be locked: "):
        StoreLock(path)

    assert not elsewhere.exists()
