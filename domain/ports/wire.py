"""The wire's port: what tells a response to its client."""

from typing import Protocol

from turnlog.domain.events import ResponseEvent


class Framer(Protocol):
    """Tells one response's events as the frames of its stream: a pure function of the events so far."""

    @property
    def closed(self) -> bool:
        """Whether the last frame has been told."""

    def receive(self, event: ResponseEvent) -> list[bytes]:
        """Frames that follow from `event`, in order; possibly none."""
