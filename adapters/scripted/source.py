"""A script that was declared as a model: checked at once, read again and played from the first turn on."""

import time
from pathlib import Path

from turnlog.adapters.scripted.engine import ScriptedEngine
from turnlog.adapters.scripted.script import read_script
from turnlog.domain.defaults import ModelDefaults
from turnlog.domain.errors import EngineError


class ScriptedSource:
    """A `ModelSource`. Two of the same file are equal.

    Raises:
        EngineError: the file cannot be read, or what is in it is no script.
    """

    def __init__(self, path: Path) -> None:
        self._path = path.resolve()
        script = read_script(path)
        self._weight_bytes = script.weight_bytes
        self._defaults = script.defaults

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ScriptedSource) and other._path == self._path

    def __hash__(self) -> int:
        return hash(self._path)

    @property
    def weight_bytes(self) -> int:
        """What the script claimed when it was declared."""
        return self._weight_bytes

    @property
    def defaults(self) -> ModelDefaults:
        """The script's content when it was declared."""
        return self._defaults

    def load(self) -> ScriptedEngine:
        """Take as long as the script says by now, and fail if it says so."""
        script = read_script(self._path)
        time.sleep(script.load_ms / 1000)
        if script.load_error is not None:
            raise EngineError(script.load_error)
        return ScriptedEngine(script)
