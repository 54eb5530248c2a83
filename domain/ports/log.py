"""The log's ports: what keeps events, and what reads them."""

from collections.abc import Iterator, Sequence, Set
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Protocol

from turnlog.domain.audit.filters import AuditFilter
from turnlog.domain.audit.rows import AuditPage, AuditRow
from turnlog.domain.audit.usage import UsageKey, UsageSum
from turnlog.domain.events import Recorded
from turnlog.domain.items import Item


class EventJournal(Protocol):
    """Takes events for the store, in order, without making the caller wait."""

    def append(self, events: Sequence[Recorded]) -> Future[None]:
        """Store all of `events` or none; resolved once they are durable.

        A store that is locked or gives no clear answer is asked until the append has settled, however long
        that takes; what was appended later waits behind it. The future fails with

        - `StorageConflictError`: a version is not the one after the last of its response;
        - `StorageRefusedError`: the store is full, read-only or corrupt;
        - `StorageError`: the events cannot be stored at all, or the journal was closed.

        Then nothing of the append is stored, and what is appended to its responses after it fails for
        the same reason. An append that begins where the failed one began, or before, is a new try.
        """

    def close(self) -> None:
        """Write what is queued, as far as the store takes it in time, then stop."""


class JournalLoad(Protocol):
    """How far a journal is behind with its writes. Any thread; never waits."""

    @property
    def accepts_new(self) -> bool:
        """Whether new turns may begin; an append of a running one is taken all the same."""

    @property
    def queued_bytes(self) -> int:
        """How much memory the appends that have not settled take, roughly."""

    def oldest_queued_s(self) -> float:
        """How long the oldest of them has waited; 0 when there is none."""


class LogCopier(Protocol):
    """Copies the log while it is written."""

    def backup(self, target: Path) -> Future[int]:
        """Copy the log to a new file, whole as at one moment; the size of the copy in bytes.

        The future cannot be cancelled, and fails with `StorageError`: the file is there already, cannot be
        written, or the journal was closed.
        """


class ContentExpirer(Protocol):
    """Removes the content of responses whose time is over, or which were deleted (D-14)."""

    def expire(self, now_s: int, *, spare: Set[str] = frozenset(), limit: int = ...) -> Future[int]:
        """Take one small step and return how many events it went through; 0 when there is nothing left.

        A response that was deleted, or expired before `now_s` and has ended, gets a `ContentExpired`, and its
        events lose their content but keep their places. Call it again until it returns 0.

        Args:
            spare: responses to leave alone, because more events of theirs will be appended; their
                conversations are left alone, too, as far as they are not limited (D-37).
            limit: how many events one step may go through.
        """


class ContentEraser(ContentExpirer, Protocol):
    """Removes the content of responses when somebody asks for it (D-40)."""

    def delete(self, response_id: str, *, at_ms: int, asked_by: str) -> Future[int]:
        """Record `ResponseDeleted` for a response that has ended; how many there were, 0 or 1.

        It is gone for its owner then; `expire` removes its content, before that of any other. One that was
        deleted or has lost its content already, or is not there, counts as 0. The future fails with
        `IllegalTransitionError` if the turn has not ended, and with `StorageError`.
        """


class MetadataWriter(Protocol):
    """Changes the metadata of responses that have ended."""

    def change_metadata(self, response_id: str, metadata: dict[str, Any], *, at_ms: int) -> Future[int]:
        """Record `MetadataChanged`; how many responses changed, 0 if there is none or it is deleted, or 1.

        The future fails with `IllegalTransitionError` if the turn has not ended, and with `StorageError`.
        """


class EventReader(Protocol):
    """Reads the log on threads of its own, never waiting for a writer. Futures fail with `StorageError`.

    With `owner`, anybody else's responses are not there, and finding that out costs what a missing one costs:
    nothing of them is read (D-18).
    """

    def events(self, response_id: str, *, owner: str | None = None) -> Future[list[Recorded]]:
        """All events of a response in order; empty if there is no such response."""

    def dated(self, response_id: str, *, owner: str | None = None) -> Future[tuple[list[Recorded], int]]:
        """All events of a response in order, and its expiry as Unix time in seconds (D-37).

        No events and 0 if there is no such response.
        """

    def expiry(self, response_id: str, *, owner: str | None = None) -> Future[int]:
        """When a response expires, or did, as Unix time in seconds; 0 if there is no such response."""

    def chain(
        self, response_id: str, *, limit: int, now_s: int = 0, owner: str | None = None
    ) -> Future[list[list[Recorded]]]:
        """The events of a response and its ancestors, oldest response first, in one query, without deltas.

        A chain ends before the first ancestor that is not there, whose content was removed or that expires
        at `now_s` or before: the oldest response returned then names it as its `previous_response_id`. At
        most `limit` + 1 responses are read.
        """

    def items(self, item_ids: Set[str], *, now_s: int, owner: str | None = None) -> Future[dict[str, Item]]:
        """The output items of those ids, of responses that have not expired; unknown ids are left out."""

    def unfinished(self) -> Future[list[str]]:
        """The ids of the responses that have not ended, or owe their steering input a fate, oldest first."""

    def ping(self) -> Future[None]:
        """Resolved once the store has answered."""

    def same_file(self) -> bool:
        """Whether the store's file is still the one that was opened.

        A file that was deleted or replaced goes on taking writes that nobody will ever read.
        """

    def close(self) -> None:
        """Stop the reader threads."""


class AuditReader(Protocol):
    """Finds responses in the log's read model. Expired ones have rows, too, but no content to be found by.

    Everywhere `owner` None is an operator, who sees everybody's; anyone else's responses are not there for
    an owner (D-18). Futures fail with `StorageError`.
    """

    def find(self, wanted: AuditFilter, *, asked_by: str | None = None) -> Future[AuditPage]:
        """One page of the responses that meet every condition; `asked_by` an owner, it is a read of theirs.

        The future fails with `InvalidRequestError` if `after` is not the id of a response one may see.
        """

    def row(self, response_id: str, *, owner: str | None = None) -> Future[AuditRow | None]:
        """The row of one response; None if it is not there."""

    def family(
        self, response_id: str, *, owner: str | None = None, limit: int = ...
    ) -> Future[list[AuditRow]]:
        """All responses of the conversation that this one is part of, oldest first; at most `limit`.

        Continuations, forks, failed turns, replays. `previous_response_id` and `follows` make them a tree; a
        replay of the first response stands beside it. Empty if the response is not there.
        """

    def replays_of(self, response_id: str, *, owner: str | None = None) -> Future[list[AuditRow]]:
        """The responses that run this one again, oldest first."""

    def usage(
        self, by: Sequence[UsageKey], *, since_ms: int | None = None, until_ms: int | None = None
    ) -> Future[list[UsageSum]]:
        """Sums of turns and tokens over the responses created in that time, the most tokens first."""

    def attempts_of(self, response_id: str, *, owner: str | None = None) -> Future[list[AuditRow]]:
        """What the client sent again after a failure, this response among it, oldest first (`attempts`)."""

    def latest_under_key(self, key_digest: str, *, since_ms: int) -> Future[str | None]:
        """The newest response, not failed and made since then, whose idempotency key has this digest."""


class LogExport(Protocol):
    """One pass over the log as JSON lines, up to the newest event when it began. Any thread, one at a time.

    `total` is the number of events the pass reads, `done` of those it has read, whether or not they are of
    the time asked for. `position` is the position of the last one read; a later pass continues behind it.
    """

    total: int
    done: int
    position: int

    def __iter__(self) -> Iterator[bytes]:
        """Chunks of whole lines: a header, events, an end line.

        Raises:
            StorageError: the log cannot be read.
        """


class LogExporter(Protocol):
    """Exports the events of the log in the order they were stored."""

    def export(
        self,
        *,
        after: int = 0,
        since_ms: int | None = None,
        until_ms: int | None = None,
        owner: str | None = None,
    ) -> LogExport:
        """Begin a pass behind the position `after`, over events from `since_ms` and before `until_ms`.

        With `owner`, over the events of their responses only.

        Reads the store at once and while it is iterated: not on the event loop.

        Raises:
            StorageError: the log cannot be read.
        """
