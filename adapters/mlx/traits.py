"""What a chat template takes, found by trying: it is a program, and only running it tells.

Each trial renders a small conversation of words that no template has. The template takes it if it does not
raise and every word is shown: many leave out without a sound what they know nothing of.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

from msgspec import Struct

from turnlog.adapters.mlx import recast
from turnlog.adapters.mlx.toolparse import functions
from turnlog.domain.errors import InvalidRequestError
from turnlog.domain.ports import EFFORTS
from turnlog.domain.tools import Json, Tool

Recast = Callable[[Sequence[Json]], list[Json]]

_ASKED, _SAID, _SYSTEM, _OUTPUT = "turnlogasked", "turnlogsaid", "turnlogsystem", "turnlogoutput"
_TOOL, _WITH, _OTHER, _OTHER_OUTPUT = "turnlogtool", "turnlogwith", "turnlogother", "turnlogresult"

_USER: Json = {"role": "user", "content": _ASKED}
_ASSISTANT: Json = {"role": "assistant", "content": _SAID}
_TOOLS = functions([Tool(_TOOL, "function", _TOOL)])


class Apply(Protocol):
    """Runs the template; raises `InvalidRequestError` if that does."""

    def __call__(self, conversation: Sequence[Json], tools: Sequence[Json] = (), **options: Any) -> str: ...


class Traits(Struct, frozen=True, kw_only=True):
    """What one template takes, and what it has to be given instead.

    `calls_untooled` says whether calls of the past are shown where no tool is offered any more, `calls` what
    has to be done to calls and outputs that are shown; both mean nothing without `tools`. `effort` says how
    the reasoning effort reaches the prompt, `levels` which efforts the template takes by name.
    """

    in_parts: bool
    system: bool
    tools: bool
    calls_untooled: bool
    calls: tuple[Recast, ...]
    effort: Literal["none", "switch", "levels"]
    levels: tuple[str, ...]


def traits_of(apply: Apply, *, reads_calls: bool) -> Traits:
    """Try a template.

    Args:
        reads_calls: whether `mlx_lm` can read the calls that the template asks for.
    """
    in_parts = not _shows(apply, [_USER]) and _shows(apply, recast.in_parts([_USER]))

    def shows(conversation: Sequence[Json], tools: Sequence[Json] = ()) -> bool:
        return _shows(apply, recast.in_parts(conversation) if in_parts else conversation, tools)

    calls = _recast_of_calls(shows) if reads_calls and shows([_USER], _TOOLS) else None
    looped = [_USER, *_called({"a": _WITH})]
    beginnings = [[_USER], [_USER, _ASSISTANT, _USER]]
    if calls is not None:
        beginnings.append(_recast(looped, calls))
    question = recast.in_parts([_USER]) if in_parts else [_USER]
    levels = _levels(apply, question)
    return Traits(
        in_parts=in_parts,
        system=all(shows([{"role": "system", "content": _SYSTEM}, *each]) for each in beginnings),
        tools=calls is not None,
        calls_untooled=calls is not None and shows(_recast(looped, calls)),
        calls=calls or (),
        effort="levels" if levels else "switch" if _is_switched(apply, question) else "none",
        levels=levels,
    )


def _recast_of_calls(shows: Callable[[Sequence[Json], Sequence[Json]], bool]) -> tuple[Recast, ...] | None:
    """What makes the template show calls and their outputs; None if nothing does."""
    ways: list[tuple[Recast, ...]] = [
        (),
        (recast.with_short_ids,),
        (recast.with_texts_only,),
        (recast.with_short_ids, recast.with_texts_only),
    ]
    for way in ways:
        if shows(_recast([_USER, *_called({"a": _WITH})], way), _TOOLS):
            break
    else:
        return None
    if recast.with_texts_only not in way and not shows(_recast([_USER, *_called(_WITH)], way), _TOOLS):
        way = (*way, recast.with_objects_only)
    together = [_USER, *_called({"a": _WITH}, {"a": _OTHER})]
    if not shows(_recast(together, way), _TOOLS):
        way = (recast.one_call_each, *way)
    return way


def _called(*arguments: Any) -> list[Json]:
    """A message with a call for each of the arguments, and the outputs."""
    outputs = (_OUTPUT, _OTHER_OUTPUT)[: len(arguments)]
    calls = [
        {"id": f"call_turnlog{place}", "type": "function", "function": {"name": _TOOL, "arguments": each}}
        for place, each in enumerate(arguments)
    ]
    return [
        {"role": "assistant", "content": "", "tool_calls": calls},
        *(
            {"role": "tool", "content": output, "tool_call_id": call["id"], "name": _TOOL}
            for call, output in zip(calls, outputs, strict=True)
        ),
    ]


def _recast(conversation: Sequence[Json], way: Sequence[Recast]) -> list[Json]:
    found = list(conversation)
    for change in way:
        found = change(found)
    return found


def _shows(apply: Apply, conversation: Sequence[Json], tools: Sequence[Json] = ()) -> bool:
    text = _text(apply, conversation, tools=tools)
    return text is not None and all(word in text for word in _words([*conversation, *tools]))


def _words(value: Any) -> set[str]:
    """The words of a trial anywhere in it; ids need not be shown."""
    match value:
        case str():
            return {value} if value.startswith("turnlog") else set()
        case list():
            return set().union(*map(_words, value))
        case dict():
            return set().union(
                *(_words(each) for key, each in value.items() if key not in ("id", "tool_call_id"))
            )
        case _:
            return set()


def _levels(apply: Apply, conversation: Sequence[Json]) -> tuple[str, ...]:
    """The efforts that the template takes by name; none if it shows no difference between them."""
    texts = {level: _text(apply, conversation, reasoning_effort=level) for level in EFFORTS}
    taken = tuple(level for level, text in texts.items() if text is not None)
    return taken if len({texts[level] for level in taken}) > 1 else ()


def _is_switched(apply: Apply, conversation: Sequence[Json]) -> bool:
    on, off = (_text(apply, conversation, enable_thinking=thinks) for thinks in (True, False))
    return on != off


def _text(apply: Apply, conversation: Sequence[Json], **options: Any) -> str | None:
    try:
        return apply(conversation, **options)
    except InvalidRequestError:
        return None
