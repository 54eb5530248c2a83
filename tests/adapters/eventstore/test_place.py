"""Where a store may be kept, and who may read it there."""

import logging
import os
import stat
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.adapters.eventstore.stories import opened, turn
from turnlog.adapters.eventstore import place
from turnlog.adapters.eventstore.lock import StoreLock
from turnlog.adapters.eventstore.place import SIDE_FILES, check_is_local, file_system
from turnlog.adapters.eventstore.store import open_reader
from turnlog.adapters.private import warn_of_writers
from turnlog.domain.errors import StorageError

MOUNTS = r"""
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:40 / /mnt/share rw - nfs4 server:/share rw
31 22 0:41 / /mnt/share/local rw master:2 - xfs /dev/sdb1 rw
32 22 0:42 / /mnt/two\040words rw - fuse.sshfs me@there: rw
33 22 0:43 / /mnt/windows rw - cifs //server/share rw
34 22 0:44 / /mnt/over rw - nfs server:/x rw
35 22 0:45 / /mnt/over rw - tmpfs tmpfs rw
"""


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def open_umask() -> object:
    """Without it a careless user's files are open to everybody."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_umask")
def test_whatever_a_store_makes_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "turnlog.db"

    with closing(StoreLock(path)), opened(path) as store:
        store.journal.append(turn("resp_a")).result()
        files = {each.name: mode(each) for each in path.parent.iterdir()}

    assert files == {f"turnlog.db{suffix}": 0o600 for suffix in ("", ".lock", *SIDE_FILES)}
    assert (mode(path.parent), mode(path.parent.parent), mode(tmp_path)) == (0o700, 0o700, mode(tmp_path))


@pytest.mark.parametrize("read_only", [False, True])
def test_what_was_open_to_others_is_closed(path: Path, *, read_only: bool) -> None:
    with opened(path) as store:
        store.journal.append(turn("resp_a")).result()
        files = [path.with_name(f"turnlog.db{suffix}") for suffix in ("", *SIDE_FILES)]
        for each in files:
            each.chmod(0o664)

        if read_only:
            open_reader(path).close()
        else:
            StoreLock(path).close()

        assert [mode(each) for each in files] == [0o600] * 3


def test_what_belongs_to_somebody_else_is_named(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(path):
        pass
    path.chmod(0o644)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)

    StoreLock(path).close()

    assert f"'{path}' belongs to user {os.getuid()} and is open to others (mode 644)" in caplog.text


def test_a_folder_in_which_others_replace_files_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for given, named in ((0o755, False), (0o1777, False), (0o777, True), (0o770, True)):
        caplog.clear()
        tmp_path.chmod(given)
        with caplog.at_level(logging.WARNING):
            warn_of_writers(tmp_path)
        assert (f"Others can replace files in '{tmp_path}'" in caplog.text) == named


@pytest.mark.parametrize(
    ("at", "kind"),
    [
        ("/home/ada/turnlog.db", "ext4"),
        ("/mnt/share/turnlog.db", "nfs4"),
        ("/mnt/shared.db", "ext4"),
        ("/mnt/share/local/turnlog.db", "xfs"),
        ("/mnt/two words/new/turnlog.db", "fuse.sshfs"),
        ("/mnt/windows/turnlog.db", "cifs"),
        ("/mnt/over/turnlog.db", "tmpfs"),
    ],
)
def test_a_file_system_of_another_machine_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str, kind: str
) -> None:
    (tmp_path / "mountinfo").write_text(MOUNTS.lstrip())
    monkeypatch.setattr(place, "_MOUNTS", tmp_path / "mountinfo")
    monkeypatch.setattr(sys, "platform", "linux")

    assert file_system(Path(at)) == kind
    if kind in ("nfs4", "fuse.sshfs", "cifs"):
        with pytest.raises(
            StorageError, match=rf"on a network file system \({kind}\).*Keep it on a local disk"
        ):
            check_is_local(Path(at))
    else:
        check_is_local(Path(at))


def test_the_disk_that_tests_run_on_is_local(path: Path) -> None:
    assert file_system(path)
    check_is_local(path)
