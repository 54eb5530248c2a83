"""The scripted engine: the engine port, played from a script. One thread plays all turns."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from math import inf
from pathlib import Path
from threading import Condition, Thread
from time import monotonic
from typing import Final, Self

from msgspec.structs import replace

from turnlog.adapters.scripted.prompt import TOKENIZER_FINGERPRINT, ScriptedPrompt, render, word_ids
from turnlog.adapters.scripted.script import Ending, Script, ScriptedTurn, Step, read_script
from turnlog.domain import tokens
from turnlog.domain.errors import EngineError, PromptTooLongError, ShuttingDownError
from turnlog.domain.messages import Message
from turnlog.domain.ports import (
    CacheHandle,
    Cancelled,
    Constraint,
    Crash,
    Deliver,
    End,
    EngineChunk,
    EngineCrashed,
    EngineFailed,
    EngineFinal,
    EngineInfo,
    EngineOutput,
    Exhausted,
    Prompt,
    ReasoningChunk,
    Submission,
    TextChunk,
    Vitals,
)
from turnlog.domain.schemas import checked
from turnlog.domain.tokens import TokenIds
from turnlog.domain.tools import Tool
from turnlog.domain.usage import Timing

_log: Final = logging.getLogger(__name__)


class ScriptedHandle:
    """The token ids that a turn has read and written."""

    def __init__(self, ids: TokenIds) -> None:
        self._ids: TokenIds | None = ids

    @property
    def ids(self) -> TokenIds:
        """The ids; `ValueError` once they are dropped."""
        if self._ids is None:
            raise ValueError("the handle was dropped")
        return self._ids

    def drop(self) -> None:
        """Forget the ids; `ValueError` if that was done before."""
        if self._ids is None:
            raise ValueError("the handle was dropped before")
        self._ids = None


@dataclass(slots=True, eq=False)
class _Turn:
    """A turn that is being played; its next step is due at `due_s` on the monotonic clock."""

    id: str
    prompt: ScriptedPrompt
    script: ScriptedTurn
    steps: Iterator[Step]
    deliver: Deliver
    cached_tokens: int
    unbatched: bool
    submitted_s: float
    due_s: float = 0.0
    first_token_ms: float | None = None
    cancelled: bool = False

    def emit(self, chunk: EngineChunk) -> None:
        """Deliver a chunk of the answer, unless it is empty."""
        if not chunk.text:
            return
        if self.first_token_ms is None:
            self.first_token_ms = (monotonic() - self.submitted_s) * 1000
        self.send(chunk)

    def send(self, output: EngineOutput) -> None:
        """Deliver `output`; what goes wrong in that is logged."""
        try:
            self.deliver(output)
        except Exception:
            # The other turns must go on, and so must this one: its reader may still wait for the end.
            _log.exception("an output of turn %s was not taken", self.id)

    def end(self, ending: Ending) -> End:
        """The end of the turn, with a handle of all it has read and written."""
        end = self.script.end(ending, prompt_tokens=len(self.prompt.ids), cached_tokens=self.cached_tokens)
        return replace(
            end,
            timing=Timing(first_token_ms=self.first_token_ms),
            unbatched=self.unbatched,
            cache=ScriptedHandle(self.prompt.ids + word_ids(end.text)),
        )


class ScriptedEngine:
    """Plays a `Script`. Turns take steps in rounds, one step each, so that none holds up another.

    Sampling, seed and token budget change nothing: the output is fixed by the script.
    """

    def __init__(self, script: Script) -> None:
        self._script = script
        self._info = EngineInfo(
            model_fingerprint=script.fingerprint,
            tokenizer_fingerprint=TOKENIZER_FINGERPRINT,
            context_window_tokens=script.context_window,
            concurrency=script.concurrency,
            reads_images=True,
            weight_bytes=script.weight_bytes,
            kv_bytes_per_token=script.kv_bytes_per_token,
        )
        self._turns: dict[str, _Turn] = {}
        self._pings: list[Future[None]] = []
        self._closed = False
        self._crash: EngineCrashed | None = None
        self.crashed: Future[Crash] = Future()
        # Guards the four private ones above; notified when the engine thread has to look at them again.
        self._changed = Condition()
        self._thread = Thread(target=self._play, name="scripted-engine", daemon=True)
        self._thread.start()

    @classmethod
    def load(cls, path: Path) -> Self:
        """An engine that plays the script in a file.

        Raises:
            EngineError: the file cannot be read, or what is in it is no script.
        """
        return cls(read_script(path))

    @property
    def info(self) -> EngineInfo:
        """The model is the script: its fingerprint changes with the script's content."""
        return self._info

    def vitals(self) -> Vitals:
        """The `EngineInfo` that the script declares."""
        return Vitals(memory_bytes=self._info.weight_bytes)

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Tool] = (),
        effort: str | None = None,
        recorded: Mapping[int, TokenIds] | None = None,
        most_tokens: int | None = None,
    ) -> ScriptedPrompt:
        """The names of the tools and the conversation, with words as tokens. The effort changes nothing."""
        prompt = render(messages, recorded or {}, tools)
        if most_tokens is not None and len(prompt.ids) > most_tokens:
            raise PromptTooLongError(len(prompt.ids))
        return replace(prompt, effort=effort)

    def decode_tokens(self, ids: TokenIds) -> tuple[str, ...]:
        """The ids as numbers: they are hashes of words, which nobody can undo."""
        return tuple(map(str, ids))

    def compile(self, constraint: Constraint) -> Constraint:
        """The constraint unchanged, if it is within the limits: the script ignores it."""
        return checked(constraint)

    def submit(self, submission: Submission, deliver: Deliver) -> None:
        """Play the entry that fits the prompt. `deliver` is called on the engine's thread.

        Raises:
            ShuttingDownError: the engine is closed.
            ValueError: the warm handle was dropped.
        """
        prompt = submission.prompt
        assert isinstance(prompt, ScriptedPrompt), "a prompt is played by the engine that rendered it"
        script = self._script.turn_for(prompt.last_text)
        warm = submission.warm
        cached_tokens = self.common_prefix(warm, prompt) if warm is not None else 0
        with self._changed:
            if self._closed:
                raise ShuttingDownError
            if self._crash:
                deliver(self._crash)
                return
            assert submission.turn_id not in self._turns, "a turn is submitted once"
            for other in self._turns.values():
                other.unbatched = False
            self._turns[submission.turn_id] = _Turn(
                id=submission.turn_id,
                prompt=prompt,
                script=script,
                steps=iter(script.steps),
                deliver=deliver,
                cached_tokens=cached_tokens,
                unbatched=not self._turns,
                submitted_s=monotonic(),
            )
            self._changed.notify()

    def cancel(self, turn_id: str) -> None:
        """End a turn before its next step, also while it sleeps or hangs."""
        with self._changed:
            if turn := self._turns.get(turn_id):
                turn.cancelled = True
                self._changed.notify()

    def ping(self) -> Future[None]:
        """Resolved before the next round of steps."""
        answer: Future[None] = Future()
        with self._changed:
            if self._closed:
                answer.set_exception(ShuttingDownError())
            elif self._crash:
                answer.set_exception(EngineError(self._crash.message))
            else:
                self._pings.append(answer)
                self._changed.notify()
        return answer

    def common_prefix(self, handle: CacheHandle, prompt: Prompt) -> int:
        """How many tokens `prompt` and what the handle has read begin with."""
        return tokens.common_prefix(_own(handle).ids, prompt.ids)

    def size_bytes(self, handle: CacheHandle) -> int:
        """The script's own bytes per token, else four."""
        return (self._info.kv_bytes_per_token or 4) * len(_own(handle).ids)

    def drop(self, handle: CacheHandle) -> None:
        """Forget what the handle has read; using it again raises `ValueError`."""
        _own(handle).drop()

    def release_memory(self) -> None:
        """Nothing is held for later use."""

    def abort(self, reason: str) -> None:
        """Play a crash: all turns end with it, and no more are played."""
        with self._changed:
            if self._closed or self._crash:
                return
            self._crash = EngineCrashed(f"The engine crashed: {reason}.")
            turns = list(self._turns.values())
            self._turns.clear()
            self._changed.notify()
        lone = tokens.digest(turns[0].prompt.ids) if len(turns) == 1 else None
        self.crashed.set_result(Crash(reason, lone_prompt=lone))
        for turn in turns:
            turn.send(self._crash)

    def close(self) -> None:
        """Cancel all turns and wait until their ends are delivered."""
        with self._changed:
            self._closed = True
            for turn in self._turns.values():
                turn.cancelled = True
            self._changed.notify()
        self._thread.join()

    # ── on the engine's thread ──

    def _play(self) -> None:
        while turns := self._due():
            for turn in turns:
                if turn.id in self._turns:  # else it ended with a crash
                    self._advance(turn)

    def _due(self) -> list[_Turn]:
        """Wait for turns that have something to do; none means that the engine is closed."""
        with self._changed:
            while True:
                while self._pings:
                    answer = self._pings.pop()
                    # The caller may have given up meanwhile.
                    if answer.set_running_or_notify_cancel():
                        answer.set_result(None)
                now_s = monotonic()
                due = [turn for turn in self._turns.values() if turn.due_s <= now_s or turn.cancelled]
                if due or self._closed:
                    return due
                next_s = min((turn.due_s for turn in self._turns.values()), default=inf)
                self._changed.wait(None if next_s == inf else next_s - now_s)

    def _advance(self, turn: _Turn) -> None:
        """One step of a turn."""
        if turn.cancelled:
            self._finish(turn, Cancelled(ScriptedHandle(turn.prompt.ids)))
            return
        match next(turn.steps, None):
            case None:
                self._finish(turn, Exhausted())
            case Step(text=str(text)):
                turn.emit(TextChunk(text))
            case Step(reasoning=str(text)):
                turn.emit(ReasoningChunk(text))
            case Step(sleep_ms=int() | float() as sleep_ms):
                turn.due_s = monotonic() + sleep_ms / 1000
            case Step(raise_=str(message)):
                self._finish(turn, EngineFailed(message))
            case Step(hang=True):
                turn.due_s = inf
            case Step(crash=True):
                self.abort("its script says so")
            case Step(end=Ending() as ending):
                self._finish(turn, turn.end(ending))

    def _finish(self, turn: _Turn, final: EngineFinal) -> None:
        # Before the end is delivered: its receiver may start the next turn, which then runs unbatched.
        with self._changed:
            if self._turns.pop(turn.id, None) is None:
                return  # it ended with a crash
        turn.send(final)


def _own(handle: CacheHandle) -> ScriptedHandle:
    assert isinstance(handle, ScriptedHandle), "a handle is used by the engine that made it"
    return handle
