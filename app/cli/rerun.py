"""One re-run on the running server: what is sent for it, and what came of it."""

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from turnlog.app.cli.console import fail
from turnlog.app.cli.server import Server, ServerRefusedError

Json = dict[str, Any]

WELL = ("completed", "incomplete")
"""How a turn ends that has an answer."""


class Replayed(Struct, frozen=True):
    """How a re-run ended; `replay` is None if it was refused, and `message` says why it did not go well."""

    original: str
    replay: str | None
    status: str
    message: str | None = None

    @property
    def went_well(self) -> bool:
        """Whether there is an answer."""
        return self.status in WELL


def replay_body(options: Json) -> Json:
    """What the options change of a re-run."""
    body: Json = {"seed": options["seed"]} if options["seed"] == "new" else {}
    if options["model"]:
        body["model"] = options["model"]
    if options["settings"]:
        body["set"] = dict(map(_setting, options["settings"]))
    return body


def replayed(server: Server, response_id: str, body: Json) -> Replayed:
    """Run a turn again and wait for its end."""
    response: Json = {}
    try:
        for event in replay_events(server, response_id, body):
            response = event.get("response", response)
    except ServerRefusedError as refusal:
        return Replayed(response_id, None, "refused", str(refusal))
    error = response["error"]
    return Replayed(response_id, response["id"], response["status"], error and error["message"])


def replay_events(server: Server, response_id: str, body: Json) -> Iterator[Json]:
    """Replay a turn; the events of its stream as they come."""
    for line in server.lines(f"/v1/responses/{response_id}/replay", body):
        if line.startswith("data: ") and line != "data: [DONE]":
            yield msgspec.json.decode(line.removeprefix("data: "))


def _setting(text: str) -> tuple[str, Any]:
    """A NAME=VALUE; the value is JSON, or else text."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        fail(f"--set is '{text}': expected NAME=VALUE, for example temperature=0.2")
    try:
        return name, msgspec.json.decode(value)
    except msgspec.DecodeError:
        return name, value
