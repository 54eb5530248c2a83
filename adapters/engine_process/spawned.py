"""A process of ours: spawned, watched for its end, and never left behind."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Thread
from typing import Final

LAST_WORDS_BYTES: Final = 4096

# Linux ends a child when the thread that made it ends: all are made by one that lives as long as the server.
_spawner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="spawner")


class SpawnedProcess:
    """A Python module that runs in a process of its own, with one end of a socket pair.

    It inherits nothing else: no listening socket, no lock, no file of the log. It has a process group of its
    own, so that a terminal's Ctrl-C is for the server alone. Its module ends it when the server is gone
    (`turnlog.adapters.mlx.hosted`).

    Args:
        module: run with the number of its descriptor and the server's process id as arguments.
    """

    def __init__(self, module: str) -> None:
        self.socket, theirs = socket.socketpair()
        with theirs:
            self._process = _spawner.submit(_spawn, module, theirs.fileno()).result()
        self._last_words = bytearray()
        self._listener = Thread(target=self._listen, name=f"stderr-{self.pid}", daemon=True)
        self._listener.start()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def kill(self) -> None:
        """End it at once, also if it is stopped; `wait` says when it is gone."""
        self._process.kill()

    def wait(self) -> str:
        """Wait for its end; how it came to it, in words."""
        code = self._process.wait()
        if code >= 0:
            return f"it exited with code {code}"
        return f"it was ended by {signal.Signals(-code).name}"

    def last_words(self) -> str:
        """The end of what it wrote to its error stream; whole once it has ended."""
        # A grandchild may hold the stream open for ever.
        self._listener.join(timeout=1)
        return self._last_words.decode(errors="replace").strip()

    def close(self) -> None:
        """End it and let go of all that belongs to it. Calling it twice is as good as once."""
        self.kill()
        self.wait()
        self.socket.close()

    def _listen(self) -> None:
        assert self._process.stderr
        with self._process.stderr as stream:
            while piece := os.read(stream.fileno(), LAST_WORDS_BYTES):
                self._last_words += piece
                del self._last_words[:-LAST_WORDS_BYTES]


def _spawn(module: str, descriptor: int) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(  # noqa: S603 - our own interpreter and module
        [sys.executable, "-P", "-m", module, str(descriptor), str(os.getpid())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        pass_fds=(descriptor,),
        process_group=0,
        # The same code as here, wherever that came from.
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )


def in_background(work: Callable[[], object], name: str) -> Thread:
    """A daemon thread that has begun to do `work`."""
    thread = Thread(target=work, name=name, daemon=True)
    thread.start()
    return thread
