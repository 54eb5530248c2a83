"""A model floor for tests: engines that are in memory already, no limits unless a test asks for them."""

from contextlib import AbstractContextManager, nullcontext

from turnlog.app.models import Models
from turnlog.app.models.memory import Memory
from turnlog.app.prefix_cache import CachePool, PrefixCache
from turnlog.app.prefix_cache.prints import KeyPrints
from turnlog.domain.defaults import ModelDefaults
from turnlog.domain.ports import Clock, InferenceEngine


class Ready:
    """A `ModelSource` whose engine is there already."""

    weight_bytes = 0
    defaults = ModelDefaults()

    def __init__(self, engine: InferenceEngine) -> None:
        self._engine = engine

    def load(self) -> InferenceEngine:
        """The engine."""
        return self._engine


class NeverIdle:
    """What suspends an idle sweeper that is not there."""

    def suspended(self) -> AbstractContextManager[None]:
        """Nothing to suspend."""
        return nullcontext()


def resident(engines: dict[str, InferenceEngine], clock: Clock) -> Models:
    """A floor on which these engines are loaded, with no limits."""
    models = Models(
        {name: Ready(engine) for name, engine in engines.items()},
        max_waiting=None,
        memory=Memory(None),
        wait_s=60.0,
        idle=NeverIdle(),
        clock=clock,
    )
    for name, engine in engines.items():
        models.put(name, engine)
    return models


def no_sessions(clock: Clock) -> PrefixCache:
    """PrefixCache that keep nothing warm."""
    pool = CachePool(Memory(None), most_entries=0, most_bytes=0)
    return PrefixCache(pool, KeyPrints(), clock, ttl_s=1_800.0)
