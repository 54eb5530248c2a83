"""A stored turn as a request again: everything that made it what it was is in its `ResponseCreated`."""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from turnlog.domain.errors import InvalidRequestError
from turnlog.domain.events import ResponseCreated
from turnlog.domain.request import TurnRequest
from turnlog.domain.tools import read_choice

SETTABLE = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "stop",
    "max_output_tokens",
    "reasoning",
    "truncation",
)
"""What of a turn a re-run may change, beside its model and its seed."""

_SAMPLED = SETTABLE[:8]


class Changes(Struct, frozen=True, kw_only=True):
    """What a re-run does otherwise than the original; the values of `settings` are valid ones.

    Raises:
        InvalidRequestError: a setting is none of `SETTABLE`.
    """

    model: str | None = None
    new_seed: bool = False
    settings: Mapping[str, Any] = {}

    def __post_init__(self) -> None:
        check_settable(self.settings)


def check_settable(names: Iterable[str]) -> None:
    """Refuse settings that a re-run cannot change; `param` is "set." and the name."""
    for name in names:
        if name not in SETTABLE:
            raise InvalidRequestError(
                f"'{name}' cannot be set in a replay; there are {', '.join(SETTABLE)}.", param=f"set.{name}"
            )


def as_request(original: ResponseCreated, changes: Changes) -> TurnRequest:
    """The request that makes the original's turn once more, with these changes.

    It continues the same response as the original did and is kept as long. Instructions are the effective
    ones, so that it does not matter where the chain had them from.
    """
    sampling = original.sampling
    request = TurnRequest(
        model=changes.model or original.model,
        input=original.input,
        instructions=original.instructions,
        previous_response_id=original.previous_response_id,
        max_output_tokens=original.max_output_tokens,
        seed=None if changes.new_seed else sampling.seed,
        top_logprobs=sampling.top_logprobs,
        tools=original.tools,
        tool_choice=original.tool_choice,
        choice=read_choice(original.tool_choice, original.tools),
        parallel_tool_calls=original.parallel_tool_calls,
        text=original.text,
        reasoning=original.reasoning,
        truncation=original.truncation,
        prompt_cache_key=original.prompt_cache_key,
        cache_salt=original.cache_salt,
        safety_identifier=original.safety_identifier,
        max_tool_calls=original.max_tool_calls,
        metadata=original.metadata,
        retention_s=original.expires_at - original.at_ms // 1000,
        replay_of=original.response_id,
        **{name: getattr(sampling, name) for name in _SAMPLED},
    )
    return replace(request, **changes.settings)
