"""Where a store's file may be: on a disk of this machine, under one name, and closed to others."""

import re
import subprocess
import sys
from pathlib import Path

from turnlog.adapters.private import OWNER_ONLY, close_to_others, make_folders, warn_of_writers
from turnlog.domain.errors import StorageError

SIDE_FILES = ("-wal", "-shm")
"""What SQLite keeps beside a file, named after it; it takes over the file's rights."""

_NETWORKED = re.compile(
    r"nfs\d?|cifs|smb\d?|smbfs|afpfs|webdav|afs|9p|ceph|glusterfs|lustre|gpfs|beegfs|"
    r"fuse\.(sshfs|glusterfs|s3fs|rclone|ceph|davfs|gcsfuse)"
)
_MOUNTS = Path("/proc/self/mountinfo")
_ESCAPE = re.compile(r"\\([0-7]{3})")
_MOUNTED_ON_MACOS = re.compile(r"^.* on (?P<place>.*) \((?P<kind>[^,)]+)", re.MULTILINE)


def prepare(path: Path) -> None:
    """Make the file and its folders if they are missing, and close what is open to others.

    Raises:
        OSError: the file cannot be made.
        StorageError: no store can be kept there.
    """
    make_folders(path.parent)
    warn_of_writers(path.parent)
    check_is_local(path)
    # Not opened if it is there: closing it would end the locks that SQLite has on it in this process.
    if not path.exists():
        path.touch(mode=OWNER_ONLY)
    close_store(path)


def close_store(path: Path) -> None:
    """Close an existing store's files to others."""
    for suffix in ("", *SIDE_FILES):
        close_to_others(path.with_name(path.name + suffix))


def check_is_local(path: Path) -> None:
    """Refuse a file system that another machine serves.

    Raises:
        StorageError: the sentence says why.
    """
    kind = file_system(path)
    if kind and _NETWORKED.fullmatch(kind):
        raise StorageError(
            f"The event store '{path}' would be on a network file system ({kind}). SQLite's write-ahead log "
            "works among processes of one machine only, and locks of another machine are not reliable: two "
            "servers could damage it. Keep it on a local disk."
        )


def file_system(path: Path) -> str | None:
    """The type of the file system that a file is on or would be made on; None if the system does not say."""
    place = path.resolve()
    found: tuple[int, str] | None = None
    for mounted, kind in _mounted():
        # The last one of several on the same place hides the others.
        if place.is_relative_to(mounted) and (found is None or len(mounted) >= found[0]):
            found = len(mounted), kind
    return found and found[1]


def _mounted() -> list[tuple[str, str]]:
    """Where file systems are mounted, and of which types they are."""
    if sys.platform == "darwin":
        told = subprocess.run(["/sbin/mount"], capture_output=True, text=True, check=False).stdout
        return [(each["place"], each["kind"]) for each in _MOUNTED_ON_MACOS.finditer(told)]
    if not _MOUNTS.exists():
        return []
    # proc(5): the fifth field is the place; the type is the first one behind a field that is "-".
    lines = (line.split() for line in _MOUNTS.read_text(errors="surrogateescape").splitlines())
    return [
        (_ESCAPE.sub(lambda found: chr(int(found[1], 8)), fields[4]), fields[fields.index("-") + 1])
        for fields in lines
        if "-" in fields
    ]
