"""Engines for tests: one that computes nothing, and the scripted engine with its handles counted."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from queue import SimpleQueue

from tests.waiting import taken
from turnlog.adapters.scripted.engine import ScriptedEngine, ScriptedHandle
from turnlog.adapters.scripted.script import Script
from turnlog.domain.messages import Message
from turnlog.domain.ports import (
    CacheHandle,
    Cancelled,
    CompiledConstraint,
    Constraint,
    Crash,
    Deliver,
    End,
    EngineFinal,
    EngineInfo,
    EngineOutput,
    Prompt,
    Submission,
    Vitals,
)
from turnlog.domain.tokens import TokenIds
from turnlog.domain.tools import Tool

NO_SCRIPT = Script(turns=())


class Outputs:
    """What an engine delivers for one turn."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[EngineOutput] = SimpleQueue()
        self.deliver = self._queue.put

    def next(self) -> EngineOutput:
        """The next output."""
        return taken(self._queue)

    def all(self) -> list[EngineOutput]:
        """Every output up to the one that ends the turn."""
        outputs = [self.next()]
        while not isinstance(outputs[-1], EngineFinal):
            outputs.append(self.next())
        return outputs

    def end(self) -> End:
        """The last output, which is a good end."""
        end = self.all()[-1]
        assert isinstance(end, End), end
        return end


class PuppetEngine:
    """An `InferenceEngine` that computes nothing and says what a test makes it say.

    `running` has the turns that have not ended. If `obedient`, it ends a turn as soon as it is cancelled; if
    not `alive`, it answers no ping. `dropped` has the handles that were dropped, `closed` counts closes.

    Args:
        says: the outputs that it delivers at once for every turn.
        when_cancelled: the output by which it ends a cancelled turn.
    """

    def __init__(
        self,
        name: str = "puppet",
        *,
        concurrency: int = 1,
        weight_bytes: int = 0,
        context_window: int | None = None,
        says: Sequence[EngineOutput] = (),
        when_cancelled: Cancelled | None = None,
    ) -> None:
        self.name = name
        self.info = EngineInfo(
            model_fingerprint=name,
            tokenizer_fingerprint="t",
            context_window_tokens=context_window,
            concurrency=concurrency,
            weight_bytes=weight_bytes,
            kv_bytes_per_token=1,
        )
        self.running: dict[str, Deliver] = {}
        self.obedient = True
        self.alive = True
        self.crashed: Future[Crash] = Future()
        self.dropped: list[CacheHandle] = []
        self.closed = 0
        self._says = says
        self._when_cancelled = when_cancelled or Cancelled()

    def __repr__(self) -> str:
        return f"PuppetEngine({self.name})"

    def say(self, turn_id: str, output: EngineOutput) -> None:
        """Deliver an output of a turn, unless the turn has ended."""
        deliver = self.running.get(turn_id)
        if isinstance(output, EngineFinal):
            self.running.pop(turn_id, None)
        if deliver:
            deliver(output)

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Tool] = (),
        effort: str | None = None,
        recorded: Mapping[int, TokenIds] | None = None,
        most_tokens: int | None = None,
    ) -> Prompt:
        """One token a message."""
        return Prompt(tuple(range(len(messages))))

    def decode_tokens(self, ids: TokenIds) -> tuple[str, ...]:
        """No test asks for it."""
        raise NotImplementedError

    def compile(self, constraint: Constraint) -> CompiledConstraint:
        """No test asks for it."""
        raise NotImplementedError

    def submit(self, submission: Submission, deliver: Deliver) -> None:
        """Begin a turn."""
        self.running[submission.turn_id] = deliver
        for output in self._says:
            self.say(submission.turn_id, output)

    def cancel(self, turn_id: str) -> None:
        """End the turn, if it is running and the engine is obedient."""
        if self.obedient:
            self.say(turn_id, self._when_cancelled)

    def ping(self) -> Future[None]:
        """Answered at once, or never."""
        answer: Future[None] = Future()
        if self.alive:
            answer.set_result(None)
        return answer

    def common_prefix(self, handle: CacheHandle, prompt: Prompt) -> int:
        """Nothing is cached."""
        return 0

    def size_bytes(self, handle: CacheHandle) -> int:
        """Nothing is cached."""
        return 0

    def drop(self, handle: CacheHandle) -> None:
        """Note it."""
        self.dropped.append(handle)

    def vitals(self) -> Vitals:
        """Nothing is known."""
        return Vitals()

    def abort(self, reason: str) -> None:
        """Crash, with no turn running."""
        self.crashed.set_result(Crash(reason))

    def release_memory(self) -> None:
        """Nothing is held."""

    def close(self) -> None:
        """Count it."""
        self.closed += 1


class CountedEngine(ScriptedEngine):
    """Knows its handles that were not dropped yet. Dropping one twice raises, as does using it afterwards."""

    def __init__(self, script: Script = NO_SCRIPT) -> None:
        super().__init__(script)
        self.kept: list[CacheHandle] = []

    def handle(self, ids: TokenIds) -> ScriptedHandle:
        """A handle of what a turn has read and written."""
        handle = ScriptedHandle(ids)
        self.kept.append(handle)
        return handle

    def submit(self, submission: Submission, deliver: Deliver) -> None:
        """Count the handle that comes with the end."""

        def counted(output: EngineOutput) -> None:
            if isinstance(output, End | Cancelled) and output.cache is not None:
                self.kept.append(output.cache)
            deliver(output)

        super().submit(submission, counted)

    def drop(self, handle: CacheHandle) -> None:
        """Count it out."""
        super().drop(handle)
        self.kept.remove(handle)


class UncutEngine(CountedEngine):
    """Its handles cannot be cut back, as those of models with a sliding window or a state."""

    def common_prefix(self, handle: CacheHandle, prompt: Prompt) -> int:
        """All that the handle has, or nothing."""
        assert isinstance(handle, ScriptedHandle)
        shared = super().common_prefix(handle, prompt)
        return shared if shared == len(handle.ids) else 0
