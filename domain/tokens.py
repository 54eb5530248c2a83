"""Token ids in the log: packed, and each prompt recorded as a delta to the response before it.

A prompt repeats its whole conversation. Recorded as *base response + shared length + own suffix*, the log of
a chain grows linearly with the conversation, not quadratically.
"""

import sys
from array import array
from collections.abc import Sequence
from hashlib import sha256
from typing import Final

from msgspec import Struct

TokenIds = tuple[int, ...]

ID_BYTES: Final = 4
"""The size of a packed id."""


class PromptRecord(Struct, frozen=True, omit_defaults=True):
    """The prompt of one turn: the first `shared` ids of what response `base` read and wrote, then `suffix`.

    `digest` is the SHA-256 of the whole prompt's packed ids, so that a rebuilt prompt can be verified.
    """

    tokens: int
    digest: str
    suffix: bytes
    base: str | None = None
    shared: int = 0


def pack(ids: Sequence[int]) -> bytes:
    """Token ids as little-endian uint32, four bytes each."""
    packed = array("I", ids)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def unpack(packed: bytes) -> TokenIds:
    """The ids that `pack` packed."""
    ids = array("I")
    ids.frombytes(packed)
    if sys.byteorder == "big":
        ids.byteswap()
    return tuple(ids)


def digest(ids: Sequence[int]) -> str:
    """SHA-256 over the packed ids, in hex."""
    return sha256(pack(ids)).hexdigest()


def common_prefix(left: TokenIds | str, right: TokenIds | str) -> int:
    """The length of the common prefix, in ids or characters."""
    most = min(len(left), len(right))
    # Slices are compared in C, and a prompt has tens of thousands of ids: ever longer ones until they differ,
    # then binary search. What has little in common costs little, however long it is.
    same, differs = 0, min(64, most)
    while left[same:differs] == right[same:differs]:
        if differs == most:
            return most
        same, differs = differs, min(4 * differs, most)
    while differs - same > 1:
        middle = (same + differs) // 2
        if left[same:middle] == right[same:middle]:
            same = middle
        else:
            differs = middle
    return same


def record_prompt(prompt: TokenIds, base: str | None = None, base_ids: TokenIds = ()) -> PromptRecord:
    """Record `prompt` relative to `base_ids`, the ids that response `base` read and wrote."""
    shared = common_prefix(prompt, base_ids)
    return PromptRecord(
        tokens=len(prompt),
        digest=digest(prompt),
        suffix=pack(prompt[shared:]),
        base=base if shared else None,
        shared=shared,
    )


def rebuild_prompt(record: PromptRecord, base_ids: TokenIds = ()) -> TokenIds:
    """Rebuild the whole prompt; raises as `checked_prompt`."""
    return checked_prompt(record, pack(base_ids[: record.shared]) + record.suffix)


def checked_prompt(record: PromptRecord, packed: bytes) -> TokenIds:
    """The ids of a prompt that was rebuilt.

    Raises:
        ValueError: they do not have the recorded digest.
    """
    if sha256(packed).hexdigest() != record.digest:
        raise ValueError(f"the prompt rebuilt from {record.base} differs from the recorded one")
    return unpack(packed)
