"""The binding of names to model objects, and what keeps a binding alive (R-060 … R-077).

Each model object has one binding, whatever its names: its lane and instance id stay the same as long as a
name, a lease or a pin holds them. Synchronous; engines are compared by identity.
"""

from collections.abc import Callable
from itertools import count
from weakref import WeakKeyDictionary

from turnlog.app.models.lane import Lane
from turnlog.domain.errors import ModelNotFoundError
from turnlog.domain.ports import InferenceEngine


class Binding:
    """A loaded model with its lane. `leases` and `pins` count what keeps it beside its names.

    `names` says since when each means it, in Unix seconds; `last_use` orders bindings by their last use.
    """

    def __init__(self, engine: InferenceEngine, lane: Lane, instance_id: int) -> None:
        self.engine = engine
        self.lane = lane
        self.instance_id = instance_id
        self.names: dict[str, int] = {}
        self.leases = 0
        self.pins = 0
        self.last_use = 0
        self.on_unleased: Callable[[], None] | None = None

    @property
    def held(self) -> bool:
        """Whether anything still holds it; if not, its lane and id are forgotten (R-064, R-065)."""
        return bool(self.names or self.leases or self.pins)


class Registry:
    """Names, bindings, leases and pins; the `InstancePins` of the writes.

    Args:
        new_lane: makes the lane of a model object.
    """

    def __init__(self, new_lane: Callable[[InferenceEngine], Lane]) -> None:
        self._new_lane = new_lane
        self._ids = count(1)
        self._uses = count(1)
        self._by_name: dict[str, Binding] = {}
        self._by_engine: dict[InferenceEngine, Binding] = {}
        self._retired_ids = RetiredIds()

    def find(self, name: str) -> Binding | None:
        """What `name` means now, if a model is loaded for it."""
        return self._by_name.get(name)

    def bindings(self) -> list[Binding]:
        """Every binding that has a name, once (R-077)."""
        return [binding for binding in self._by_engine.values() if binding.names]

    def is_used(self, engine: InferenceEngine) -> bool:
        """Whether a name or a request holds the model object."""
        binding = self._by_engine.get(engine)
        return binding is not None and bool(binding.names or binding.leases)

    def bind(self, name: str, engine: InferenceEngine, *, now_s: int) -> Binding:
        """Bind `name` to the model object; `now_s` is shown in lists (R-061 … R-063, R-065)."""
        binding = self._by_engine.get(engine)
        if binding is None:
            instance_id = self._retired_ids.inherited(engine) or next(self._ids)
            binding = Binding(engine, self._new_lane(engine), instance_id)
            self._by_engine[engine] = binding
        if self._by_name.get(name) is not binding:
            self.unbind(name)
        binding.on_unleased = None  # it is in use again, so a pending unload is off
        binding.names[name] = now_s
        binding.last_use = next(self._uses)
        self._by_name[name] = binding
        return binding

    def unbind(self, name: str) -> Binding | None:
        """Unbind `name`; returns its binding, if it had one."""
        binding = self._by_name.pop(name, None)
        if binding:
            del binding.names[name]
            self._tear_down_unless_held(binding)
        return binding

    def lease(self, name: str) -> "Lease":
        """Hold the model that `name` means for one request (R-066).

        Raises:
            ModelNotFoundError: the name is not bound.
        """
        binding = self._by_name.get(name)
        if binding is None:
            raise ModelNotFoundError(name, self._by_name)
        binding.leases += 1
        binding.last_use = next(self._uses)
        return Lease(self, name, binding)

    def revive(self, binding: Binding, engine: InferenceEngine) -> None:
        """Replace a crashed engine by a new one: lane, id, names and leases stay."""
        if self._by_engine.get(binding.engine) is binding:
            del self._by_engine[binding.engine]
            self._by_engine[engine] = binding
        binding.engine = engine

    def when_unleased(self, binding: Binding, callback: Callable[[], None]) -> None:
        """Call back once no request holds the binding, possibly now; never if it is bound again first."""
        if binding.leases:
            binding.on_unleased = callback
        else:
            callback()

    def _release(self, binding: Binding) -> None:
        binding.leases -= 1
        binding.last_use = next(self._uses)
        self._tear_down_unless_held(binding)
        if binding.leases == 0 and (callback := binding.on_unleased):
            binding.on_unleased = None
            callback()

    def _tear_down_unless_held(self, binding: Binding) -> None:
        if not binding.held and self._by_engine.get(binding.engine) is binding:
            del self._by_engine[binding.engine]

    # ── the pins of writes (R-069 … R-076) ──

    def pin(self, instance_id: int) -> None:
        """See `InstancePins.pin`."""
        if binding := self._of(instance_id):
            binding.pins += 1

    def unpin(self, instance_id: int) -> None:
        """See `InstancePins.unpin`."""
        binding = self._of(instance_id)
        if binding and binding.pins:
            binding.pins -= 1
            self._tear_down_unless_held(binding)

    def retire(self, instance_id: int) -> bool:
        """See `InstancePins.retire`."""
        binding = self._of(instance_id)
        if binding:
            self._retired_ids.retire(binding.engine, instance_id)
        return binding is not None

    def unretire(self, instance_id: int) -> None:
        """See `InstancePins.unretire`."""
        self._retired_ids.settle(instance_id)

    def _of(self, instance_id: int) -> Binding | None:
        return next((each for each in self._by_engine.values() if each.instance_id == instance_id), None)


class Lease:
    """A request's hold on the model its name meant at the time, even if it is rebound later (R-068)."""

    def __init__(self, registry: Registry, name: str, binding: Binding) -> None:
        self.name = name
        self.binding = binding
        self._registry = registry
        self._released = False

    @property
    def engine(self) -> InferenceEngine:
        """The model object."""
        return self.binding.engine

    @property
    def instance_id(self) -> int:
        """The object's number in this process (R-061)."""
        return self.binding.instance_id

    @property
    def lane(self) -> Lane:
        """The object's lane."""
        return self.binding.lane

    @property
    def holds(self) -> bool:
        """Whether the name still means this object (R-138, R-139)."""
        return self._registry.find(self.name) is self.binding

    def release(self) -> None:
        """Let the object go; no effect the second time."""
        if not self._released:
            self._released = True
            self._registry._release(self.binding)


# The instance ids of unloaded models that wedged writes still refer to (R-072 … R-076).


class _RetiredId:
    __slots__ = ("instance_id", "writes")

    def __init__(self, instance_id: int) -> None:
        self.instance_id = instance_id
        self.writes = 0


class RetiredIds:
    """One retired id per model object, however many writes are wedged (R-074). Keeps no model alive."""

    def __init__(self) -> None:
        self._by_engine: WeakKeyDictionary[InferenceEngine, _RetiredId] = WeakKeyDictionary()

    def __len__(self) -> int:
        return len(self._by_engine)

    def retire(self, engine: InferenceEngine, instance_id: int) -> None:
        """Count one more wedged write that refers to the object's id."""
        self._by_engine.setdefault(engine, _RetiredId(instance_id)).writes += 1

    def inherited(self, engine: InferenceEngine) -> int | None:
        """The id that this object gets back; another object under the same name does not."""
        retired = self._by_engine.get(engine)
        return retired.instance_id if retired else None

    def settle(self, instance_id: int) -> None:
        """One of those writes has settled; the last one removes the retired id."""
        for engine, retired in list(self._by_engine.items()):
            if retired.instance_id == instance_id:
                retired.writes -= 1
                if retired.writes == 0:
                    del self._by_engine[engine]
