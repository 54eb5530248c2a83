"""An engine that says what the test makes it say."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future

from turnlog.domain.messages import Message
from turnlog.domain.ports import (
    CacheHandle,
    Cancelled,
    CompiledGuide,
    Crash,
    Deliver,
    EngineInfo,
    EngineOutput,
    Guide,
    Prompt,
    Submission,
    Vitals,
)
from turnlog.domain.tokens import TokenIds
from turnlog.domain.tools import Tool

LANE = 2
"""How many turns the engine runs at once; the others wait."""


class PuppetEngine:
    """The `InferenceEngine` of one process. If `obedient`, it ends a turn as soon as it is cancelled."""

    def __init__(self) -> None:
        self.info = EngineInfo(
            model_fingerprint="m", tokenizer_fingerprint="t", context_window_tokens=None, concurrency=LANE
        )
        self.running: dict[str, Deliver] = {}
        self.obedient = True
        self.crashed: Future[Crash] = Future()

    def say(self, turn_id: str, output: EngineOutput) -> None:
        """Let it say something in a turn, if it was not cancelled while time passed."""
        if deliver := self.running.get(turn_id):
            deliver(output)

    def end(self, turn_id: str, output: EngineOutput) -> None:
        """Let it say the last of a turn, if it was not cancelled while time passed."""
        if deliver := self.running.pop(turn_id, None):
            deliver(output)

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Tool] = (),
        thinking: bool | None = None,
        recorded: Mapping[int, TokenIds] | None = None,
    ) -> Prompt:
        """One token a message."""
        return Prompt(tuple(range(len(messages))))

    def compile(self, guide: Guide) -> CompiledGuide:
        """Nobody asks for it in the model."""
        raise NotImplementedError

    def submit(self, submission: Submission, deliver: Deliver) -> None:
        """Begin a turn."""
        self.running[submission.turn_id] = deliver

    def cancel(self, turn_id: str) -> None:
        """End the turn, if it is running and the engine is obedient."""
        if self.obedient and turn_id in self.running:
            self.end(turn_id, Cancelled())

    def ping(self) -> Future[None]:
        """Answered at once."""
        answer: Future[None] = Future()
        answer.set_result(None)
        return answer

    def common_prefix(self, handle: CacheHandle, prompt: Prompt) -> int:
        """Nothing is cached."""
        return 0

    def size_bytes(self, handle: CacheHandle) -> int:
        """Nothing is cached."""
        return 0

    def drop(self, handle: CacheHandle) -> None:
        """Nothing is cached."""

    def spell(self, ids: TokenIds) -> tuple[str, ...]:
        """Nobody asks."""
        raise NotImplementedError

    def vitals(self) -> Vitals:
        """Nothing is known."""
        return Vitals()

    def abort(self, reason: str) -> None:
        """Crash, with no turn running."""
        self.crashed.set_result(Crash(reason))

    def release_memory(self) -> None:
        """Nothing is held."""

    def close(self) -> None:
        """Nothing to close."""
