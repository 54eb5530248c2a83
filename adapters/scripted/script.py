"""A script: what the scripted engine answers, and when. `docs/scripted-engine.md` describes the format.

Reading is strict: what does not fit is refused, and the refusal names the place.
"""

from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, field

from turnlog.domain.defaults import ModelDefaults
from turnlog.domain.errors import EngineError
from turnlog.domain.ports import End, EngineCall, FinishReason

Given = TypeVar("Given")

_Count = Annotated[int, Meta(ge=0)]
_AtMostADay = Annotated[float, Meta(ge=0, le=86_400_000)]


class ScriptedCall(Struct, frozen=True, forbid_unknown_fields=True):
    """A tool call in an ending; `arguments` as JSON text, or as the object itself."""

    name: str
    arguments: str | dict[str, Any]
    id: str | None = None
    status: str = "ok"

    def engine_call(self) -> EngineCall:
        """The call as the engine reports it, its arguments as text."""
        arguments = self.arguments
        if not isinstance(arguments, str):
            arguments = msgspec.json.encode(arguments).decode()
        return EngineCall(self.name, arguments, self.id, self.status)


class Ending(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The engine is done. What is not given follows from the steps (`ScriptedTurn.end`)."""

    finish_reason: FinishReason = "stop"
    text: str | UnsetType = UNSET
    thinking: str | UnsetType | None = UNSET
    prompt_tokens: _Count | UnsetType = UNSET
    output_tokens: _Count | UnsetType = UNSET
    cached_tokens: _Count | UnsetType | None = UNSET
    reasoning_tokens: _Count | UnsetType = UNSET
    tool_calls: tuple[ScriptedCall, ...] = ()


class Step(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One thing that happens in a turn: exactly one field is set."""

    text: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    sleep_ms: _AtMostADay | UnsetType = UNSET
    raise_: str | UnsetType = field(default=UNSET, name="raise")
    hang: bool | UnsetType = UNSET
    crash: bool | UnsetType = UNSET
    end: Ending | UnsetType = UNSET

    def __post_init__(self) -> None:
        if sum(getattr(self, name) is not UNSET for name in self.__struct_fields__) != 1:
            keys = ", ".join(f"`{key}`" for key in self.__struct_encode_fields__)
            raise ValueError(f"A step has exactly one of {keys}")
        for name in ("hang", "crash"):
            if getattr(self, name) is False:
                raise ValueError(f"`{name}` can only be true")


class ScriptedTurn(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The steps of a turn, for prompts whose last user or tool text contains `match`; None fits any."""

    steps: tuple[Step, ...]
    match: str | None = None

    def end(self, ending: Ending, *, prompt_tokens: int, cached_tokens: int) -> End:
        """What `ending` says, and where it says nothing what the steps add up to.

        Args:
            prompt_tokens, cached_tokens: the true counts of the turn.
        """
        texts = [step.text for step in self.steps if isinstance(step.text, str)]
        thoughts = [step.reasoning for step in self.steps if isinstance(step.reasoning, str)]
        return End(
            finish_reason=ending.finish_reason,
            text=_given(ending.text, "".join(texts)),
            thinking=_given(ending.thinking, "".join(thoughts) or None),
            prompt_tokens=_given(ending.prompt_tokens, prompt_tokens),
            output_tokens=_given(ending.output_tokens, len(texts) + len(thoughts)),
            cached_tokens=_given(ending.cached_tokens, cached_tokens),
            reasoning_tokens=_given(ending.reasoning_tokens, len(thoughts)),
            tool_calls=tuple(call.engine_call() for call in ending.tool_calls),
        )


class Script(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A whole file. `concurrency` is how many turns run at once, `context_window` counts tokens.

    `load_ms` is how long the model takes to load, `load_error` why it fails to; `weight_bytes` and
    `kv_bytes_per_token` are the memory it declares (`EngineInfo`); `defaults` are its own.
    """

    turns: tuple[ScriptedTurn, ...]
    concurrency: Annotated[int, Meta(ge=1)] = 64
    context_window: Annotated[int, Meta(ge=1)] | None = None
    load_ms: _AtMostADay = 0.0
    load_error: str | None = None
    weight_bytes: _Count = 0
    kv_bytes_per_token: _Count = 0
    defaults: ModelDefaults = ModelDefaults()

    def turn_for(self, text: str) -> ScriptedTurn:
        """The first turn that fits `text`; when none does, one that fails and names the text."""
        for turn in self.turns:
            if turn.match is None or turn.match in text:
                return turn
        return ScriptedTurn(steps=(Step(raise_=f"no entry of the script fits the text {text!r}"),))

    @property
    def fingerprint(self) -> str:
        """SHA-256 in hex of the script's content, independent of its formatting."""
        content = {
            "turns": self.turns,
            "concurrency": self.concurrency,
            "context_window": self.context_window,
        }
        return sha256(msgspec.json.encode(content, order="sorted")).hexdigest()


def read_script(path: Path) -> Script:
    """The script in a file.

    Raises:
        EngineError: the file cannot be read, or what is in it is no script. Names the file and the place.
    """
    try:
        written = path.read_bytes()
    except OSError as error:
        raise EngineError(f"{path}: the script cannot be read: {error.strerror}") from error
    return parse_script(written, str(path))


def parse_script(written: bytes | str, source: str = "script") -> Script:
    """The script that `written` is in JSON; `source` names it in refusals.

    Raises:
        EngineError: it is no script.
    """
    try:
        script = msgspec.json.decode(written, type=Script)
    except (msgspec.DecodeError, RecursionError) as error:
        # msgspec puts the place last: "Expected `int`, got `str` - at `$.turns[0]`".
        sentence, _, place = str(error).partition(" - at `$")
        raise EngineError(": ".join(filter(None, [source, place.strip(".`"), sentence]))) from error
    for at, turn in enumerate(script.turns):
        for after, step in enumerate(turn.steps[:-1], start=1):
            if step.end is not UNSET:
                raise EngineError(f"{source}: turns[{at}].steps[{after}]: Nothing can follow `end`")
    return script


def _given(value: Given | UnsetType, default: Given) -> Given:
    return default if value is UNSET else value
