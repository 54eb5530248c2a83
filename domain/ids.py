"""Typed ids: a prefix that names the kind, then the 32 hex digits of a UUIDv7 (R-010, D-23)."""

from enum import StrEnum
from typing import Final

_VERSION_7: Final = 0x7 << 76
_VARIANT: Final = 0b10 << 62


class IdKind(StrEnum):
    """What an id names; its value is the prefix on the wire."""

    RESPONSE = "resp_"
    MESSAGE = "msg_"
    REASONING = "rs_"
    FUNCTION_CALL = "fc_"
    CUSTOM_CALL = "ctc_"
    CALL = "call_"
    STEER = "steer_"


CHAT_PREFIX: Final = "chatcmpl-"
"""What a response's id begins with on the surface of Chat Completions, in place of its own prefix."""


def response_id(given: str) -> str:
    """The id of a response that a client names by either surface's form; anything else as it is."""
    digits = given.removeprefix(CHAT_PREFIX)
    return given if digits == given else f"{IdKind.RESPONSE}{digits}"


def completion_id(response_id: str) -> str:
    """A response's id as Chat Completions has it."""
    return CHAT_PREFIX + response_id.removeprefix(IdKind.RESPONSE)


def typed_id(kind: IdKind, now_ms: int, entropy: bytes) -> str:
    """An id that sorts by the millisecond it was made in (RFC 9562, section 5.7).

    Args:
        now_ms: Unix time in milliseconds, 48 bits.
        entropy: 10 random bytes, of which 74 bits are used.
    """
    random = int.from_bytes(entropy, "big")
    rand_a = (random >> 62) & 0xFFF
    rand_b = random & ((1 << 62) - 1)
    return f"{kind.value}{(now_ms << 80) | _VERSION_7 | (rand_a << 64) | _VARIANT | rand_b:032x}"
