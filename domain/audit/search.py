"""The texts of a turn by which auditors find it."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from turnlog.domain.audit.folding import folded
from turnlog.domain.items import item_texts
from turnlog.domain.messages import Message
from turnlog.domain.response import Response


def searchable_text(response: Response) -> str:
    """What `q` is looked for in: the own input messages of a turn and its listed output items, folded.

    Each is on a line of its own: text, reasoning, and the name and arguments of calls. Instructions are not
    in it: every turn of a chain inherits them.
    """
    pieces = [*_spoken(response.created.input), *item_texts(response.items, call="{} {}")]
    return "\n".join(filter(None, map(folded, pieces)))


def _spoken(messages: Iterable[Message]) -> Iterator[str]:
    for message in messages:
        yield message.reasoning or ""
        yield message.content
        for call in message.tool_calls:
            yield f"{call.name} {call.arguments}"


def metadata_texts(metadata: dict[str, Any]) -> dict[str, str]:
    """Metadata as it is filtered by: strings as they are, anything else as JSON."""
    return {
        key: value if isinstance(value, str) else msgspec.json.encode(value).decode()
        for key, value in metadata.items()
    }
