"""Events as the store keeps them: JSON under the event's own tag, with no import path and no class name."""

import msgspec
from eventsourcing.persistence import Mapper, StoredEvent, Transcoder

from turnlog.domain.errors import StorageError
from turnlog.domain.events import Recorded, ResponseEvent, topic


class EventTranscoder(Transcoder):
    """An event as JSON and back; the JSON's `type` says which event it is."""

    def __init__(self) -> None:
        self._encoder = msgspec.json.Encoder()
        self._decoder = msgspec.json.Decoder(ResponseEvent)

    def encode(self, obj: ResponseEvent) -> bytes:
        return self._encoder.encode(obj)

    def decode(self, data: bytes) -> ResponseEvent:
        return self._decoder.decode(data)


class EventMapper(Mapper[str]):
    """Puts recorded events into rows and takes them out again.

    Built here and not from the environment: a stray `COMPRESSOR_TOPIC` or `CIPHER_KEY` has no effect.
    """

    def __init__(self) -> None:
        super().__init__(EventTranscoder())

    # The library types its mapper for its own event classes; ours know nothing of it.

    def to_stored_event(self, domain_event: Recorded) -> StoredEvent:  # type: ignore[override]
        """The row of an event.

        Raises:
            StorageError: it holds something JSON cannot represent, such as an unpaired surrogate.
        """
        response_id, version, event = domain_event.response_id, domain_event.version, domain_event.event
        try:
            state = self.transcoder.encode(event)
        except (TypeError, ValueError, RecursionError) as error:
            name = _name(response_id, version, topic(event))
            raise StorageError(f"{name} cannot be written: {error}") from error
        return StoredEvent(response_id, version, topic(event), state)

    def to_domain_event(self, stored_event: StoredEvent) -> Recorded:  # type: ignore[override]
        """The event of a row.

        Raises:
            StorageError: this version of turnlog does not know the topic, or the row is damaged.
        """
        response_id, version = str(stored_event.originator_id), stored_event.originator_version
        name = _name(response_id, version, stored_event.topic)
        try:
            event = self.transcoder.decode(stored_event.state)
        except (TypeError, ValueError, RecursionError) as error:
            raise StorageError(f"{name} cannot be read: {error}") from error
        if topic(event) != stored_event.topic:
            raise StorageError(f"{name} cannot be read: its state belongs to {topic(event)}")
        return Recorded(response_id, version, event)


def _name(response_id: str, version: int, event_topic: str) -> str:
    return f"Event {version} of response '{response_id}' ({event_topic})"
