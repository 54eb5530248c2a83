"""A script that was declared as a model: checked at once, read again and played from the first turn on."""

import time
from pathlib import Path

from turnlog.adapters.scripted.engine import ScriptedEngine
from turnlog.adapters.scripted.script import read_script
from turnlog.domain.errors import EngineError


class ScriptedSource:
    """A `ModelSource`. Two of the same file are equal.

    Raises:
        EngineError: the file cannot be read, or what is in it is no script.
    """

    def __init__(self, path: Path) -> None:
        self._path = path.resolve()
        self._weight_bytes = read_script(path).weight_bytes

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ScriptedSource) and other._path == self._path

    def __hash__(self) -> int:
        return hash(self._path)

    @property
    def weight_bytes(self) -> int:
        """What the script claimed when it was declared."""
        return self._weight_bytes

    def load(self) -> ScriptedEngine:
        """Take as long as the script says by now, and fail if it says so."""
        script = read_script(self._path)
        time.sleep(script.load_ms / 1000)
        if script.load_error is not None:
            raise EngineError(script.load_error)
        return ScriptedEngine(script)
