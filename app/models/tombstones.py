"""The instance ids of models that are gone while writes which carry them are wedged (R-072 … R-076)."""

from weakref import WeakKeyDictionary

from domain.ports import InferenceEngine


class _Tombstone:
    __slots__ = ("instance_id", "writes")

    def __init__(self, instance_id: int) -> None:
        self.instance_id = instance_id
        self.writes = 0


class Tombstones:
    """One entry a model object, however many of its writes are wedged (R-074). Keeps no model alive."""

    def __init__(self) -> None:
        self._by_engine: WeakKeyDictionary[InferenceEngine, _Tombstone] = WeakKeyDictionary()

    def __len__(self) -> int:
        return len(self._by_engine)

    def retire(self, engine: InferenceEngine, instance_id: int) -> None:
        """One more wedged write carries the object's id."""
        self._by_engine.setdefault(engine, _Tombstone(instance_id)).writes += 1

    def inherited(self, engine: InferenceEngine) -> int | None:
        """The id that this very object gets again if it has none; another object under its name does not."""
        tombstone = self._by_engine.get(engine)
        return tombstone.instance_id if tombstone else None

    def settle(self, instance_id: int) -> None:
        """One of those writes has settled; with the last one the entry goes."""
        for engine, tombstone in list(self._by_engine.items()):
            if tombstone.instance_id == instance_id:
                tombstone.writes -= 1
                if tombstone.writes == 0:
                    del self._by_engine[engine]
