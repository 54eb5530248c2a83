"""What listings say of a model."""

from typing import Literal

from msgspec import Struct

from turnlog.app.models.crashes import LastCrash
from turnlog.app.models.loading import LoadRecord
from turnlog.domain.defaults import ModelDefaults

State = Literal["declared", "loading", "resident"]


class ModelStatus(Struct, frozen=True, kw_only=True):
    """The status of a model for listings; `aliases` are the other names for the same model.

    `capacity` is how many turns it runs at once, 1 until that is known. `memory_bytes` is the memory of its
    processes, `restarts` the number of crashes since the server started, `unavailable` why only an operator
    can load it again. `queued_turns` includes the `reservations`, which are admitted but not in the queue
    yet; `queue_limit` is how many may wait, None for no limit. `loads` are the latest loads.
    """

    name: str
    state: State
    registered_s: int
    instance_id: int | None
    weight_bytes: int
    aliases: tuple[str, ...]
    capacity: int
    defaults: ModelDefaults = ModelDefaults()
    active_turns: int
    queued_turns: int
    process_id: int | None = None
    memory_bytes: int = 0
    restarts: int = 0
    last_crash: LastCrash | None = None
    unavailable: str | None = None
    reservations: int = 0
    queue_limit: int | None = None
    loads: tuple[LoadRecord, ...] = ()
