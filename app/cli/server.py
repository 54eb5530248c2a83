"""The running server of a log, as commands talk to it.

It is found by the file beside the log, which names its address and the token that its operator has. Commands
that change something go through it, because one process at a time may write a log.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from turnlog.adapters.eventstore.lock import holder
from turnlog.domain.errors import ResponsesError

CONNECT_S = 5.0

Json = dict[str, Any]


class NoServerError(ResponsesError):
    """No server answers for the log, or none that could be found."""

    def __init__(self, database: Path, because: str) -> None:
        super().__init__(
            f"{because} the log '{database}'. Start one with 'turnlog serve', or choose another log "
            "with --db."
        )


class ServerRefusedError(ResponsesError):
    """The server answered, and said no."""


class Server:
    """Talks to a running server as its operator, without a time limit: a model may take minutes to load.

    Args:
        database: the log that the server keeps.

    Raises:
        NoServerError: there is none.
    """

    def __init__(self, database: Path) -> None:
        self._database = database
        found = holder(database)
        if found is None or not _runs(found.pid):
            raise NoServerError(database, "No server is running for")
        if found.address is None:
            raise NoServerError(database, f"The server (process {found.pid}) is still starting for")
        self.address = _reachable(found.address)
        self._http = httpx.Client(
            base_url=self.address,
            headers={"Authorization": f"Bearer {found.token}"},
            timeout=httpx.Timeout(None, connect=CONNECT_S),
            # A proxy of the environment could not reach this machine, and must not see the token.
            trust_env=False,
        )

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def get(self, path: str) -> Json:
        """What the server answers there.

        Raises:
            NoServerError: it cannot be reached, or is gone before it has answered.
            ServerRefusedError: it refused, or what answers is no turnlog.
        """
        return self._ask("GET", path)

    def post(self, path: str, body: Json) -> Json:
        """What the server answers to this body; raises as `get` does."""
        return self._ask("POST", path, json=body)

    def lines(self, path: str, body: Json) -> Iterator[str]:
        """The lines of what the server streams in answer to this body, as they come; raises as `get` does."""
        try:
            with self._http.stream("POST", path, json=body) as answer:
                if answer.is_success:
                    yield from answer.iter_lines()
                    return
                answer.read()
        except httpx.TransportError as error:
            raise self._gone(error) from None
        self._said(answer)  # no success, so it raises

    def _ask(self, method: str, path: str, **content: Any) -> Json:
        try:
            answer = self._http.request(method, path, **content)
        except httpx.TransportError as error:
            raise self._gone(error) from None
        return self._said(answer)

    def _gone(self, error: httpx.TransportError) -> NoServerError:
        reason = str(error) or type(error).__name__
        return NoServerError(self._database, f"No server answers at {self.address} ({reason}) for")

    def _said(self, answer: httpx.Response) -> Json:
        try:
            said = answer.json()
            if answer.is_success and isinstance(said, dict):
                return said
            message = str(said["error"]["message"])
        except (ValueError, TypeError, KeyError):
            asked = f"{answer.request.method} {answer.request.url.path}"
            message = f"The server at {self.address} is not turnlog: {answer.status_code} for {asked}"
        raise ServerRefusedError(message)


def _reachable(address: str) -> str:
    """The address on this machine of a server that listens on all of them."""
    return address.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")


def _runs(pid: int) -> bool:
    """Whether there is such a process; a server that was killed leaves its name behind."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # somebody else's
    return True
