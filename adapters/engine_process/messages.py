"""The messages between the server and the processes of a model.

Structs are arrays on the wire, tagged by a number; token ids are packed (`domain.tokens`). A turn goes by a
number of the server, a prefix cache by a number of the engine process.
"""

from typing import Any, Literal

from msgspec import Struct

from turnlog.domain.events import Sampling
from turnlog.domain.items import Logprob
from turnlog.domain.messages import Message
from turnlog.domain.ports import EngineCall, EngineInfo, FinishReason, TurnStats
from turnlog.domain.tokens import TokenIds, common_prefix
from turnlog.domain.tools import Tool

Shape = Literal["free", "json", "calls", "json or calls"]
"""What an answer is constrained to."""


class Grammar(Struct, frozen=True, array_like=True):
    """A compiled constraint: a grammar that llguidance has accepted, and the answer's form."""

    grammar: str
    shape: Shape


class CacheExtent(Struct, frozen=True, array_like=True):
    """The facts about an engine's cache that decide its use: how much it has read, where it can be trimmed.

    `chunks` are those of layers that let go of what is behind them: the first position a layer still has, and
    the length of its chunks (Llama 4).
    """

    tokens: int
    trimmable: bool
    chunks: tuple[tuple[int, int], ...] = ()

    def spared(self, ids: TokenIds, prompt: TokenIds) -> int:
        """How many ids at the start of `prompt` need not be read again; at least one is left to read.

        Args:
            ids: what the cache has read.
        """
        shared = min(common_prefix(ids, prompt), len(prompt) - 1)
        return shared if shared == self.tokens or self._can_be_cut(shared) else 0

    def _can_be_cut(self, count: int) -> bool:
        """Whether the layers still have all that the model, after `count` ids, would look at.

        Chunked ones look back to the beginning of a chunk. `trim` does not mind: it cuts what is there.
        """
        return self.trimmable and all(start <= count // size * size for start, size in self.chunks)


class CacheNote(Struct, frozen=True, array_like=True):
    """A prefix cache that the engine process keeps until it is dropped."""

    number: int
    size_bytes: int
    extent: CacheExtent


# ── to the engine process ──


class LoadModel(Struct, frozen=True, array_like=True, tag=0):
    """The first message: load the model in `folder`. `hashes` is where hashes of files are kept."""

    folder: str
    hashes: str | None
    concurrency: int


class Submit(Struct, frozen=True, array_like=True, tag=1):
    """Start a turn."""

    turn: int
    turn_id: str
    prompt: bytes
    sampling: Sampling
    output_budget_tokens: int
    warm: int | None
    constraint: Grammar | None
    tools: tuple[Tool, ...]


class Cancel(Struct, frozen=True, array_like=True, tag=2):
    """End a turn at the next safe point."""

    turn_id: str


class Ping(Struct, frozen=True, array_like=True, tag=3):
    """Answer with a `Pong`, whatever is being computed."""


class Drop(Struct, frozen=True, array_like=True, tag=4):
    """Let go of a prefix cache."""

    cache: int


class ReleaseMemory(Struct, frozen=True, array_like=True, tag=5):
    """Give memory back that was freed but is still held."""


ToEngine = LoadModel | Submit | Cancel | Ping | Drop | ReleaseMemory


# ── from the engine process ──


class Loaded(Struct, frozen=True, array_like=True, tag=0):
    """The model is ready. `slow_because` is why this machine computes slowly, if there is a cure."""

    info: EngineInfo
    slow_because: str | None = None


class LoadFailed(Struct, frozen=True, array_like=True, tag=1):
    """The model cannot be used; the process ends."""

    message: str


class Pong(Struct, frozen=True, array_like=True, tag=2):
    """A sign of life. `step_s` is how long the present step takes by now, 0 between two.

    `memory_bytes` is what the process holds, without what `ReleaseMemory` would give back.
    """

    step_s: float
    memory_bytes: int


class Said(Struct, frozen=True, array_like=True, tag=0):
    """Some of a turn's answer."""

    turn: int
    text: str
    logprobs: tuple[Logprob, ...] = ()


class Thought(Struct, frozen=True, array_like=True, tag=1):
    """Some of a turn's thinking."""

    turn: int
    text: str


class Ended(Struct, frozen=True, array_like=True, tag=2):
    """A turn came to its end; see `domain.ports.End`."""

    turn: int
    finish_reason: FinishReason
    text: str
    thinking: str | None
    tool_calls: tuple[EngineCall, ...]
    stats: TurnStats
    cache: CacheNote | None


class Failed(Struct, frozen=True, array_like=True, tag=3):
    """Something raised; see `domain.ports.EngineFailed`."""

    turn: int
    message: str
    stats: TurnStats | None
    constraint_lost: bool = False


class WasCancelled(Struct, frozen=True, array_like=True, tag=4):
    """A turn was cancelled; see `domain.ports.Cancelled`. `read_tokens` of its prompt are in the cache."""

    turn: int
    stats: TurnStats | None
    cache: CacheNote | None


Output = Said | Thought | Ended | Failed | WasCancelled


class Outputs(Struct, frozen=True, array_like=True, tag=3):
    """All outputs of one step."""

    outputs: list[Output]


class Logged(Struct, frozen=True, array_like=True, tag=4):
    """A line for the server's log, without content. `level` is one of the `logging` module."""

    level: int
    line: str


FromEngine = Loaded | LoadFailed | Pong | Outputs | Logged


# ── the text process ──


class LoadTokenizer(Struct, frozen=True, array_like=True, tag=0):
    """The first message: load the tokenizer and the chat template in `folder`.

    `memory_bytes` is what the process may take for that and for a request.
    """

    folder: str
    memory_bytes: int


class Render(Struct, frozen=True, array_like=True, tag=1):
    """Render a conversation; see `InferenceEngine.render`. Answered by `Rendered` or `TooLong`."""

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...]
    effort: str | None
    recorded: dict[int, bytes]
    most_tokens: int | None = None


class Decode(Struct, frozen=True, array_like=True, tag=2):
    """Decode each id on its own. Answered by `Decoded`."""

    ids: bytes


class CompileJson(Struct, frozen=True, array_like=True, tag=3):
    """Compile a `JsonConstraint`. Answered by `Compiled`."""

    schema: dict[str, Any] | None
    tools: tuple[Tool, ...]
    many: bool


class CompileCalls(Struct, frozen=True, array_like=True, tag=4):
    """Compile a `CallConstraint`. Answered by `Compiled`."""

    tools: tuple[Tool, ...]
    many: bool


ToText = LoadTokenizer | Render | Decode | CompileJson | CompileCalls


class Ready(Struct, frozen=True, array_like=True, tag=0):
    """The tokenizer is there."""


class Rendered(Struct, frozen=True, array_like=True, tag=1):
    """A prompt."""

    ids: bytes
    effort: str | None


class Decoded(Struct, frozen=True, array_like=True, tag=2):
    """A text for each id."""

    texts: tuple[str, ...]


class Compiled(Struct, frozen=True, array_like=True, tag=3):
    """A constraint that holds."""

    constraint: Grammar


class Refused(Struct, frozen=True, array_like=True, tag=4):
    """The request breaks a rule (`InvalidRequestError`)."""

    message: str
    param: str | None
    code: str


class Broke(Struct, frozen=True, array_like=True, tag=5):
    """Any other exception, reported by its type and place only, as its message may hold content."""

    message: str
    out_of_memory: bool = False


class TooLong(Struct, frozen=True, array_like=True, tag=6):
    """A prompt has more tokens than it may; see `PromptTooLongError`."""

    tokens: int
    is_least: bool


FromText = Ready | Rendered | Decoded | Compiled | Refused | Broke | TooLong
