"""`turnlog export` and `turnlog import`: a log goes into a file, and out of it into another log."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import click
from rich.markup import escape

from turnlog.adapters.eventstore.transfer import Reached, import_events, reached
from turnlog.adapters.private import close_to_others
from turnlog.app.audit.times import EXAMPLES, read_time
from turnlog.app.cli.console import err, fail, out, progress_bar, refusing
from turnlog.app.cli.log_file import opened, with_the_server_stopped
from turnlog.app.cli.options import database, db_option
from turnlog.app.cli.printing import printable
from turnlog.domain.errors import ResponsesError, StorageError
from turnlog.domain.ports import LogExport

_STANDARD = "-"


@click.command("export")
@click.option("--out", "target", required=True, metavar="FILE", help="Output file; - is standard output.")
@click.option("--since", metavar="TIME", help=f"Events at or after TIME, {EXAMPLES}.")
@click.option("--until", metavar="TIME", help="Events before TIME.")
@click.option("--owner", metavar="NAME", help="Only this owner's responses.")
@click.option("--resume", is_flag=True, help="Append new events to FILE, even if it was cut off.")
@db_option
def export_log(
    target: str,
    since: str | None,
    until: str | None,
    owner: str | None,
    db: str | None,
    *,
    resume: bool,
) -> None:
    """Export the log to a file.

    Writes one JSON object per event, in the order they were stored. Works while a server is running. Existing
    files are never overwritten; --resume appends new events. A whole log can be imported elsewhere. An export
    with --since or --until may contain incomplete responses and is for reading only.
    """
    path = Path(target)
    with opened(db) as log:
        now_ms = log.audit.clock.now_ms()
        since_ms, until_ms = (
            text and read_time(name, text, now_ms=now_ms)
            for name, text in (("since", since), ("until", until))
        )
        begun = _begun(path, resume=resume) if target != _STANDARD else None
        if begun and (since or until or owner):
            fail(
                f"--resume keeps the time range and the owner of '{target}' and cannot be combined with "
                "--since, --until or --owner."
            )
        if begun:
            since_ms, until_ms, owner = begun.since_ms, begun.until_ms, begun.owner
        exported = log.audit.log.export(
            after=begun.position if begun else 0,
            since_ms=since_ms or None,
            until_ms=until_ms or None,
            owner=owner,
        )
        if begun and not exported.total and begun.complete:
            out.print(f"{escape(printable(target))} is up to date")
            return
        with _writing(path, begun) if target != _STANDARD else _standard_output() as file:
            _write(exported, file)
    err.print(f"Exported {exported.done:,} events, up to position {exported.position}")


def _begun(path: Path, *, resume: bool) -> Reached | None:
    """How far an export that is to be gone on with has got; None if there is none."""
    if not path.exists() or not (path.stat().st_size or path.is_dir()):
        return None
    if not resume:
        fail(f"'{path}' already exists. Add --resume to append new events, or choose another file.")
    return reached(path)


@contextmanager
def _writing(path: Path, begun: Reached | None) -> Iterator[BinaryIO]:
    try:
        # What was said is in it, so it is for its owner alone.
        with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+b") as file:
            close_to_others(path)
            file.truncate(begun.whole_bytes if begun else 0)
            file.seek(0, os.SEEK_END)
            yield file
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        way_out = " Continue with --resume." if path.is_file() else ""
        raise StorageError(f"'{path}' could not be written: {error.strerror}.{way_out}") from error
    except KeyboardInterrupt:
        fail(f"Stopped. Continue with: turnlog export --resume --out {path}")


@contextmanager
def _standard_output() -> Iterator[BinaryIO]:
    yield sys.stdout.buffer
    sys.stdout.buffer.flush()


def _write(exported: LogExport, file: BinaryIO) -> None:
    with progress_bar() as progress:
        for chunk in exported:
            file.write(chunk)
            progress("exporting", exported.done / max(exported.total, 1))


@click.command("import")
@click.argument("source", metavar="FILE")
@db_option
def import_log(source: str, db: str | None) -> None:
    """Import an export into an empty log.

    FILE may be - for standard input. The log is created if it does not exist. The import is atomic and keeps
    ids, events and the bytes of re-streamed responses. No server may be running on the log.
    """
    with refusing():
        path = database(db)
        with with_the_server_stopped(path), _reading(source) as lines, progress_bar() as progress:
            count = import_events(path, lines(lambda done: progress("importing", done)))
    out.print(f"Imported {count:,} events into {escape(printable(str(path)))}")


@contextmanager
def _reading(source: str) -> Iterator[Callable[[Callable[[float], None]], Iterator[bytes]]]:
    """The lines of the export, for whoever wants to know how much of it is read."""
    try:
        with open(
            sys.stdin.fileno() if source == _STANDARD else source, "rb", closefd=source != _STANDARD
        ) as file:
            size = os.fstat(file.fileno()).st_size

            def lines(progress: Callable[[float], None]) -> Iterator[bytes]:
                done = 0
                for number, line in enumerate(file):
                    done += len(line)
                    if number % 1000 == 0:
                        progress(done / size if size else 0)
                    yield line

            yield lines
    except OSError as error:
        raise _UnreadableError(f"'{source}' could not be read: {error.strerror}") from error


class _UnreadableError(ResponsesError):
    """The export cannot be read."""
