"""Which of these tests can run here."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory


@contextmanager
def mounted(folder: Path, size: str) -> Iterator[None]:
    """A file system in memory at that folder, of that size.

    Raises:
        subprocess.CalledProcessError: this machine or user may not mount.
    """
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    subprocess.run(mount, check=True, capture_output=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _can_mount() -> bool:
    if sys.platform != "linux" or os.geteuid() != 0:
        return False
    try:
        with TemporaryDirectory() as folder, mounted(Path(folder), "64k"):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


# A real full disk needs a mount. Everywhere else `test_store.py` has the same by a store that refuses.
collect_ignore = [] if _can_mount() else ["test_disk.py"]
