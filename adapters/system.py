"""Time and chance from the operating system."""

import os
import resource
import secrets
import time
from pathlib import Path

from turnlog.domain.ids import IdKind, typed_id
from turnlog.domain.ports import Clock


class SystemClock:
    """The wall clock."""

    def now_ms(self) -> int:
        """Unix time in milliseconds."""
        return time.time_ns() // 1_000_000


def physical_memory_bytes() -> int:
    """How much memory this machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def spread() -> float:
    """A number from -1 to 1, each as likely as any other."""
    return secrets.randbits(32) / 2**31 - 1


def allow_open_files(count: int) -> int:
    """Let this process have `count` files and connections open; how many the system lets it have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < count:  # infinity is below zero
        soft = count if hard < 0 else min(count, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return soft


def resident_bytes(pid: int) -> int:
    """How much memory a process has at the moment; 0 where the system does not say (macOS), or it is gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_bytes().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


class SystemIds:
    """Ids and seeds that nobody can guess, the ids sorted by the time of `clock`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def new_id(self, kind: IdKind) -> str:
        """A fresh typed id."""
        return typed_id(kind, self._clock.now_ms(), os.urandom(10))

    def new_seed(self) -> int:
        """A fresh sampling seed, 0 … 2**32 - 1."""
        return secrets.randbits(32)
