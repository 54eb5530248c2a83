"""The wire's port: what renders a response for its client."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from turnlog.domain.events import ResponseEvent

if TYPE_CHECKING:
    from turnlog.domain.response import Response


class SharedFrame(NamedTuple):
    """A frame in pieces: the long one in the middle is the same object in every frame that repeats it."""

    head: bytes
    shared: bytes
    tail: bytes

    def __bytes__(self) -> bytes:
        return b"".join(self)


Frame = bytes | SharedFrame


def parts(frame: Frame) -> tuple[bytes, ...]:
    """The pieces of a frame, as they are in memory."""
    return frame if isinstance(frame, SharedFrame) else (frame,)


class Framer(Protocol):
    """Renders one response's events as the frames of its stream: a pure function of the events so far."""

    @property
    def closed(self) -> bool:
        """Whether the last frame has been rendered."""

    def receive(self, event: ResponseEvent, response: "Response") -> Sequence[Frame]:
        """Frames that follow from `event`, in order; possibly none.

        Args:
            response: what the event was applied to; what has happened to it since makes no difference.
        """
