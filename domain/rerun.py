"""A stored turn as a request again: everything that made it what it was is in its `ResponseCreated`."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from turnlog.domain.errors import InvalidRequestError
from turnlog.domain.events import Echoed, ResponseCreated, Sampling
from turnlog.domain.request import TurnRequest
from turnlog.domain.retention import requested_retention_s
from turnlog.domain.tools import read_choice

_SAMPLING = tuple(name for name in Sampling.__struct_fields__ if name not in ("seed", "top_logprobs"))

SETTABLE = (*_SAMPLING, "max_output_tokens", "reasoning", "truncation")
"""What of a turn a re-run may change, beside its model and its seed."""


def setting(request: TurnRequest, name: str) -> Any:
    """The value that a request gives a setting.

    Args:
        name: one of `SETTABLE`.
    """
    return getattr(request.sampling if name in _SAMPLING else request, name)


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
                f"'{name}' cannot be changed in a replay. Valid settings: {', '.join(SETTABLE)}.",
                param=f"set.{name}",
            )


def as_request(original: ResponseCreated, changes: Changes) -> TurnRequest:
    """The request that makes the original's turn once more, with these changes.

    It continues the same response as the original did, with the same retention. Instructions are the
    effective ones, so that it does not matter where the chain had them from.
    """
    sampled = {name: value for name, value in changes.settings.items() if name in _SAMPLING}
    request = TurnRequest(
        model=changes.model or original.model,
        input=original.input,
        instructions=original.instructions,
        previous_response_id=original.previous_response_id,
        max_output_tokens=original.max_output_tokens,
        sampling=replace(original.sampling, **sampled),
        new_seed=changes.new_seed,
        left_open=frozenset(),
        defaulted=tuple(name for name in original.defaulted if name not in changes.settings),
        tools=original.tools,
        tool_choice=original.tool_choice,
        choice=read_choice(original.tool_choice, original.tools),
        parallel_tool_calls=original.parallel_tool_calls,
        text=original.text,
        reasoning=original.reasoning,
        truncation=original.truncation,
        prompt_cache_key=original.prompt_cache_key,
        cache_salt=original.cache_salt,
        echoed=msgspec.convert(original, Echoed, from_attributes=True),
        metadata=original.metadata,
        retention_s=requested_retention_s(original),
        replay_of=original.response_id,
        generate=original.generate,
        is_new=True,
    )
    return replace(request, **{name: changes.settings[name] for name in changes.settings.keys() - sampled})
