"""A uvicorn protocol whose connections can be cut off.

ASGI has no word for it: an application that just returns leaves the socket open until its buffer is taken,
which a reader that takes nothing never does.
"""

from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_EXTENSION = "turnlog.cut_off"


class CuttableProtocol(HttpToolsProtocol):
    """HTTP/1.1 as uvicorn speaks it, with an extension that drops the connection and what is unsent."""

    def on_message_begin(self) -> None:
        """A request begins: let its application reach the connection."""
        super().on_message_begin()
        self.scope["extensions"] = {_EXTENSION: {"abort": self.transport.abort}}


def cut_off(scope: Any) -> None:
    """Drop the connection of a request; under another server, nothing."""
    if extension := (scope.get("extensions") or {}).get(_EXTENSION):
        extension["abort"]()
