"""The wire's port: what renders a response for its client."""

from typing import TYPE_CHECKING, Protocol

from turnlog.domain.events import ResponseEvent

if TYPE_CHECKING:
    from turnlog.domain.response import Response


class Framer(Protocol):
    """Renders one response's events as the frames of its stream: a pure function of the events so far."""

    @property
    def closed(self) -> bool:
        """Whether the last frame has been rendered."""

    def receive(self, event: ResponseEvent, response: "Response") -> list[bytes]:
        """Frames that follow from `event`, in order; possibly none.

        Args:
            response: what the event was applied to; what has happened to it since makes no difference.
        """
