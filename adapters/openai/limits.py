"""What a request may cost: the bounds of a body, most of them settings, and the refusals that name them.

The document at `GET /openapi.json` is made from the same numbers.
"""

from itertools import accumulate
from typing import Any

from msgspec import Struct

from turnlog.domain.errors import InvalidRequestError

METADATA_PAIRS = 16
METADATA_KEY_CHARACTERS = 64
METADATA_VALUE_CHARACTERS = 512
"""As OpenAI documents them. A value that is no string counts by its JSON."""

_STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_NO_BRACKETS = bytes(byte for byte in range(256) if byte not in _STEPS)


class RequestLimits(Struct, frozen=True, kw_only=True):
    """The most that a body may have of each thing.

    `name_chars` bounds what only names something: models, ids, cache keys, tools, types.
    """

    json_depth: int = 100
    json_values: int = 200_000
    input_items: int = 10_000
    instructions_chars: int = 1_000_000
    name_chars: int = 512
    tools: int = 512
    schema_bytes: int = 64 * 1024
    schema_depth: int = 32
    stops: int = 16
    stop_chars: int = 256

    def check_name(self, given: object, field: str, *, param: str | None = None) -> None:
        """Refuse a string that is longer than a name may be; what is no string is not judged here."""
        if isinstance(given, str):
            check_length(given, self.name_chars, field, param=param)


def check_length(given: str, most: int, field: str, *, param: str | None = None) -> None:
    """Refuse a string that is too long.

    Raises:
        InvalidRequestError: it is; `param` is the field unless another is given.
    """
    if len(given) > most:
        raise InvalidRequestError(
            f"{field} has {len(given)} characters; at most {most} are allowed",
            param=param or field,
            code="string_above_max_length",
        )


def check_count(given: list[Any], most: int, field: str, *, param: str | None = None) -> None:
    """Refuse a list that is too long.

    Raises:
        InvalidRequestError: it is; `param` is the field unless another is given.
    """
    if len(given) > most:
        raise InvalidRequestError(
            f"{field} has {len(given)} entries; at most {most} are allowed",
            param=param or field,
            code="array_above_max_length",
        )


def check_json(body: bytes, limits: RequestLimits) -> None:
    """Refuse JSON of too many values or levels by its bytes, before anything is made of it.

    Linear, a few milliseconds for ten megabytes. What is no JSON at all is left to the decoder.

    Raises:
        InvalidRequestError: `code` is json_too_large or json_too_deep.
    """
    # A backslash outside of a string is no JSON, so it does not matter what is taken out there.
    bare = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    # A value comes with two strings at most, its key and itself, and a string with two quotes.
    if bare.count(b'"') > 4 * limits.json_values:
        raise _too_many(limits)
    outside = b"".join(bare.split(b'"')[::2])
    brackets = outside.translate(None, _NO_BRACKETS)
    # Each value has an opening bracket or a comma before it.
    if len(brackets) > 2 * limits.json_values or outside.count(b",") + len(brackets) / 2 > limits.json_values:
        raise _too_many(limits)
    if max(accumulate(map(_STEPS.__getitem__, brackets)), default=0) > limits.json_depth:
        raise InvalidRequestError(
            f"The body's JSON is nested more than {limits.json_depth} deep.", code="json_too_deep"
        )


def _too_many(limits: RequestLimits) -> InvalidRequestError:
    return InvalidRequestError(
        f"The body's JSON has too many values; about {limits.json_values} are allowed.", code="json_too_large"
    )
