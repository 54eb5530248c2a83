"""Files and folders that nobody but their owner may read: what was said is in them."""

import logging
import os
import stat
from pathlib import Path

log = logging.getLogger("turnlog")

OWNER_ONLY = stat.S_IRUSR | stat.S_IWUSR
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def make_folders(folder: Path) -> None:
    """Make the folder and those above it that are missing, each for its owner only.

    Raises:
        OSError: one cannot be made.
    """
    for each in (*reversed(folder.parents), folder):
        if not each.exists():
            each.mkdir(mode=stat.S_IRWXU, exist_ok=True)


def close_to_others(path: Path) -> None:
    """Take the rights of others on what is there away; if it is not ours, say who else has which."""
    try:
        state = path.stat()
        if not state.st_mode & _OTHERS:
            return
        if state.st_uid == os.geteuid():
            path.chmod(stat.S_IMODE(state.st_mode) & ~_OTHERS)
            return
    except FileNotFoundError:
        return
    except OSError as error:
        log.warning("'%s' cannot be closed to others: %s", path, error.strerror)
        return
    log.warning(
        "'%s' belongs to user %d and is open to others (mode %o): what was said can be read there",
        path,
        state.st_uid,
        stat.S_IMODE(state.st_mode),
    )


def warn_of_writers(folder: Path) -> None:
    """Say so if others can put files into the folder, or replace those in it."""
    mode = folder.stat().st_mode
    if mode & _OTHERS_WRITE and not mode & stat.S_ISVTX:
        log.warning("Others can replace files in '%s' (mode %o)", folder, stat.S_IMODE(mode))
