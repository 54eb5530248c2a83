"""The scripted engine with its handles counted, and one whose handles are good as a whole or not at all."""

from turnlog.adapters.scripted.engine import ScriptedEngine, ScriptedHandle
from turnlog.adapters.scripted.script import Script
from turnlog.domain.ports import CacheHandle, Cancelled, Deliver, End, EngineOutput, Prompt, Submission
from turnlog.domain.tokens import TokenIds

NO_SCRIPT = Script(turns=())


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
