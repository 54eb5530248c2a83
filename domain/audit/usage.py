"""Sums over turns: how many there were, how many failed, and how many tokens they read and wrote."""

from typing import Literal, get_args

from msgspec import Struct

from turnlog.domain.errors import InvalidRequestError

UsageKey = Literal["owner", "model", "day"]
"""What turns may be summed by; `day` is the day in UTC on which they were created."""

USAGE_KEYS = get_args(UsageKey)


class UsageSum(Struct, frozen=True, kw_only=True):
    """The sum of the turns that have these values of the keys.

    `failed` are those of `turns` that failed or were cancelled. Turns that have not ended count as turns and
    have no tokens yet. `cached_tokens` are those of `input_tokens` that a warm cache had.
    """

    by: dict[str, str]
    turns: int
    failed: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    reasoning_tokens: int

    @property
    def total_tokens(self) -> int:
        """Read and written."""
        return self.input_tokens + self.output_tokens


def read_keys(text: str) -> tuple[UsageKey, ...]:
    """The keys of a list such as "owner,model"; an empty one sums everything.

    Raises:
        InvalidRequestError: it names another key.
    """
    names = list(dict.fromkeys(filter(None, map(str.strip, text.split(",")))))
    if unknown := [name for name in names if name not in USAGE_KEYS]:
        raise InvalidRequestError(
            f"by may have {', '.join(USAGE_KEYS)}, not {unknown[0][:64]!r}.", param="by"
        )
    return tuple(key for name in names for key in USAGE_KEYS if key == name)
