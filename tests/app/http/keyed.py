"""Servers with keys: two clients, an auditor and an operator, each known by a name."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx

from tests.app.scripts import SCRIPT, write_script
from tests.serving import RunningServer, serving
from tests.waiting import SOON_S
from turnlog.adapters.eventstore.lock import holder
from turnlog.adapters.keys import KeyFile
from turnlog.domain.owners import Role

PEOPLE = {"alice": Role.CLIENT, "bob": Role.CLIENT, "ada": Role.AUDITOR, "olga": Role.OPERATOR}
"""Who has a key, and for what; each is the owner of that name."""

WRONG_KEY = f"tl_{'x' * 43}"
"""Of the form of a key, but nobody's."""


class Answer(NamedTuple):
    """What came back, headers by their names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def code(self) -> str | None:
        """The code of the error; None if it is none, or has no body."""
        said = json.loads(self.body) if self.status >= 400 and self.body else {}
        code: str | None = said.get("error", {}).get("code")
        return code


def send(address: str, method: str, path: str, key: str | None = None, **headers: str) -> Answer:
    """Send a request as it is written here: no client library tidies its path, `Host` or anything else."""
    fields = {"Host": urlsplit(address).netloc} | headers
    if key is not None:
        fields["Authorization"] = f"Bearer {key}"
    # Of a body that no route takes, so that nothing happens where the door is open.
    body = b"{}" if method == "POST" else b""
    fields |= {"Content-Type": "application/json", "Content-Length": str(len(body))} if body else {}
    connection = HTTPConnection(urlsplit(address).netloc, timeout=SOON_S)
    try:
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in fields.items():
            connection.putheader(name, value)
        connection.endheaders(body)
        answer = connection.getresponse()
        told = {name.lower(): value for name, value in answer.getheaders()}
        return Answer(answer.status, told, answer.read())
    finally:
        connection.close()


@dataclass(frozen=True)
class KeyedServer:
    """A server that wants keys; `keys` and `key_ids` are by the names in `PEOPLE`."""

    server: RunningServer
    file: KeyFile
    keys: dict[str, str]
    key_ids: dict[str, str]

    @property
    def operator_token(self) -> str:
        """What the command line shows instead of a key."""
        found = holder(self.server.database)
        assert found
        assert found.token
        return found.token

    def client(self, name: str) -> httpx.Client:
        """A fresh client with the key of that person."""
        return self.server.client(key=self.keys[name])

    def send(self, method: str, path: str, key: str | None = None, **headers: str) -> Answer:
        """As `send`, to this server."""
        return send(self.server.address, method, path, key, **headers)


@contextmanager
def keyed_serving(folder: Path, script: dict[str, Any] = SCRIPT, **environ: str) -> Iterator[KeyedServer]:
    """A server that plays the script for whoever of `PEOPLE` asks."""
    file = KeyFile(folder / "turnlog.db")
    made = {name: file.add(name, role, now_s=0) for name, role in PEOPLE.items()}
    keys = {name: text for name, (_, text) in made.items()}
    key_ids = {name: key.id for name, (key, _) in made.items()}
    path = write_script(folder, script)
    arguments = ("--engine", "scripted", "--script", str(path))
    with serving(folder / "turnlog.db", *arguments, **environ) as running:
        yield KeyedServer(running, file, keys, key_ids)
