"""The use cases of one running service, as the HTTP layer and the server call them."""

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from turnlog.app.access import Access
from turnlog.app.audit.reading import Audit
from turnlog.app.models import Models
from turnlog.app.operations.health import Health
from turnlog.app.operations.metrics import Metrics
from turnlog.app.replay import Replays
from turnlog.app.turns.accept import Turns
from turnlog.app.turns.background import Background
from turnlog.app.turns.cancellation import Cancellation
from turnlog.app.turns.deletion import Deletion
from turnlog.app.turns.idempotency import IdempotencyKeys
from turnlog.app.turns.in_flight import InTurn
from turnlog.app.turns.metadata import MetadataChanges
from turnlog.app.turns.quotas import Quotas
from turnlog.app.turns.retrieval import Retrieval
from turnlog.app.turns.stored_streams import StoredStreams
from turnlog.domain.budgets import SharedBudget
from turnlog.domain.ports import LogCopier


@dataclass(frozen=True)
class Service:
    """The use cases, wired by the composition root.

    Args:
        chat_store: whether the turns of chats that do not say so are stored.
        heartbeat_s: after how many seconds of silence a stream sends a heartbeat.
        in_flight: the bytes of requests, answers and stored streams that are under way.
        recover: ends the turns that an earlier process lost; call it before any turn begins.
        sweep, tidy: remove expired content, and expired cache entries, until cancelled.
        in_turn: runs slow work for an owner on a thread.
        interrupt: ends all reads of the log and all work on threads that is under way.
        announce: publishes the service's address to other programs.
    """

    models: Models
    metrics: Metrics
    turns: Turns
    background: Background
    cancellation: Cancellation
    deletion: Deletion
    metadata: MetadataChanges
    replays: Replays
    retrieval: Retrieval
    streams: StoredStreams
    idempotency_keys: IdempotencyKeys
    audit: Audit
    health: Health
    access: Access
    quotas: Quotas
    chat_store: bool
    in_flight: SharedBudget
    heartbeat_s: float
    recover: Callable[[], Awaitable[int]]
    sweep: Callable[[], Coroutine[Any, Any, None]]
    tidy: Callable[[], Coroutine[Any, Any, None]]
    copier: LogCopier
    in_turn: InTurn
    interrupt: Callable[[], None]
    announce: Callable[[str], None]
