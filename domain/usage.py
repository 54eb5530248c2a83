"""What a turn cost in tokens and time."""

from msgspec import Struct


class Usage(Struct, frozen=True, omit_defaults=True):
    """Token counts of a turn. `cached_tokens` is None when the engine does not know."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int | None = None
    reasoning_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        """Input and output together (R-341)."""
        return self.input_tokens + self.output_tokens


class Timing(Struct, frozen=True, omit_defaults=True):
    """How long the parts of a turn took; None where it is not known.

    `queue_ms` is the wait for the lane, `pre_inference_ms` runs from the request to the lane (R-343);
    the rates are tokens per second.
    """

    queue_ms: float | None = None
    pre_inference_ms: float | None = None
    first_token_ms: float | None = None
    prefill_tokens_per_s: float | None = None
    decode_tokens_per_s: float | None = None
