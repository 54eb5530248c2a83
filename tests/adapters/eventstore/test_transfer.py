"""A log goes out as lines and comes into another store as the same bytes, or not at all."""

from collections.abc import Callable
from contextlib import closing
from itertools import accumulate
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace

from tests.adapters.eventstore.stories import FAILED, STARTED, created, execute, opened, recorded, turn
from turnlog.adapters.eventstore import recorder, transfer
from turnlog.adapters.eventstore.lock import StoreLock
from turnlog.adapters.eventstore.store import open_reader
from turnlog.adapters.eventstore.transfer import EndLine, EventLine, Header, Line, import_events, reached
from turnlog.adapters.openai import frames as wire
from turnlog.domain.audit.filters import AuditFilter
from turnlog.domain.errors import StorageError
from turnlog.domain.messages import Message
from turnlog.domain.ports import LogExporter
from turnlog.domain.response import fold

EVERYTHING = "SELECT originator_id, originator_version, topic, state FROM stored_events ORDER BY rowid"
STRANGE = replace(
    created("resp_cccccccccccccccccccccccccccccccc"), input=(Message("user", "a\u2028b\n\"c\" é😀 \0 {'d'}"),)
)


@pytest.fixture
def filled(path: Path) -> Path:
    """A store of interleaved turns."""
    with opened(path) as store:
        for pair in zip(
            turn("resp_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"),
            turn("resp_bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb", previous="resp_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"),
            strict=True,
        ):
            for event in pair:
                store.journal.append([event])
        store.journal.append(
            recorded("resp_cccccccccccccccccccccccccccccccc", STRANGE, STARTED, replace(FAILED, at_ms=9000))
        ).result()
    return path


def exported(path: Path, **bounds: Any) -> list[bytes]:
    """The lines of a pass."""
    with closing(open_reader(path)) as reader:
        return b"".join(reader.export(**bounds)).splitlines(keepends=True)


def frames(path: Path, response_id: str) -> bytes:
    with closing(open_reader(path)) as reader:
        events = reader.events(response_id).result()
    story = [each.event for each in events]
    return b"".join(wire.frames(story, fold(story)))


def test_what_was_exported_is_the_same_log_elsewhere(filled: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"

    events = import_events(copy, exported(filled))

    assert (events, execute(copy, EVERYTHING)) == (17, execute(filled, EVERYTHING))
    for response_id in (
        "resp_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "resp_bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb",
        "resp_cccccccccccccccccccccccccccccccc",
    ):
        assert frames(copy, response_id) == frames(filled, response_id) != b""
    with closing(open_reader(copy)) as there, closing(open_reader(filled)) as here:
        for wanted in (
            AuditFilter(),
            AuditFilter(q="ello"),
            AuditFilter(chain="resp_bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"),
        ):
            assert there.find(wanted).result() == here.find(wanted).result()


def test_content_that_expired_between_two_passes_does_not_come_back(path: Path, tmp_path: Path) -> None:
    """D-14: the first pass was made before, and has it."""
    copy, response_id = tmp_path / "copy.db", "resp_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
    with opened(path) as store:
        store.journal.append(turn(response_id)).result()
        first = b"".join(store.reader.export())
        while store.journal.expire(2**31).result():
            pass
        position = msgspec.json.decode(first.splitlines()[-1], type=EndLine).position
        second = b"".join(store.reader.export(after=position))

    import_events(copy, (first + second).splitlines(keepends=True))

    assert b"hi" in first
    assert execute(copy, EVERYTHING) == execute(path, EVERYTHING)
    with closing(open_reader(copy)) as reader:
        assert [row.expired for row in reader.find(AuditFilter()).result().rows] == [True]
        assert reader.find(AuditFilter(q="hi")).result().rows == []


def test_a_line_is_json_with_the_event_as_it_is_stored(filled: Path) -> None:
    header, first, *_, last = exported(filled)

    state = execute(filled, EVERYTHING)[0][3]
    head = b'{"line":"event","position":1,"response_id":"%b","version":1,"topic":"response.created.v1"' % A
    assert msgspec.json.decode(header) == {
        "line": "header",
        "format": "turnlog.log",
        "format_version": 1,
        "after": 0,
        "since_ms": None,
        "until_ms": None,
    }
    assert first == head + b',"event":' + state + b"}\n"
    assert last == b'{"line":"end","events":17,"position":17}\n'


@pytest.mark.parametrize("change", [lambda state: b" " + state, lambda state: state.replace(b",", b",\n", 1)])
def test_a_state_that_cannot_stand_in_a_line_comes_back_all_the_same(
    filled: Path, tmp_path: Path, change: Callable[[bytes], bytes]
) -> None:
    copy, (*_, state) = tmp_path / "copy.db", execute(filled, EVERYTHING)[0]
    execute(filled, "UPDATE stored_events SET state = ? WHERE rowid = 1", change(state))

    import_events(copy, exported(filled))

    assert execute(copy, EVERYTHING) == execute(filled, EVERYTHING)


def test_a_damaged_event_is_exported(filled: Path) -> None:
    """An auditor must get the rest of the log, and see what is there."""
    execute(filled, "UPDATE stored_events SET state = x'ff00' WHERE rowid = 2")

    lines = exported(filled, since_ms=1, until_ms=2)

    assert [msgspec.json.decode(line).get("base64") for line in lines] == [None, "/wA=", None]


def test_a_pass_goes_on_behind_a_position(filled: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    broken_off = exported(filled)[:6]

    rest = exported(filled, after=5)
    events = import_events(copy, [*broken_off, *rest])

    assert (events, execute(copy, EVERYTHING)) == (17, execute(filled, EVERYTHING))


def test_only_events_of_the_time_asked_for_are_told(filled: Path) -> None:
    lines = exported(filled, since_ms=1003, until_ms=1005)

    events = [msgspec.json.decode(line) for line in lines[1:-1]]
    assert [(event["position"], event["event"]["at_ms"]) for event in events] == [
        (7, 1003),
        (8, 1003),
        (9, 1004),
        (10, 1004),
    ]
    assert msgspec.json.decode(lines[-1]) == {"line": "end", "events": 4, "position": 17}


def test_a_pass_ends_with_the_newest_event_when_it_began(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "EVENTS_PER_CHUNK", 3)
    with opened(path) as store:
        store.journal.append(turn("resp_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")).result()
        exporter: LogExporter = store.reader
        told = exporter.export()
        before = (told.done, told.total, told.position)
        chunks = iter(told)
        early = [next(chunks), next(chunks)]
        between = (told.done, told.total, told.position)
        store.journal.append(turn("resp_bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb")).result()
        late = list(chunks)
        after = (told.done, told.total, told.position)

    assert (before, between, after) == ((0, 7, 0), (3, 7, 3), (7, 7, 7))
    assert b"resp_bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb" not in b"".join([*early, *late])


def test_a_slow_pass_keeps_no_removed_content(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-14: it neither exports content removed meanwhile nor keeps the write-ahead log from being emptied."""
    monkeypatch.setattr(recorder, "EVENTS_PER_CHUNK", 3)
    secret = replace(created("resp_bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb", text="SECRET"), expires_at=100)
    with opened(path) as store:
        store.journal.append(
            [
                *turn("resp_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"),
                *recorded("resp_bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb", secret, FAILED),
            ]
        ).result()
        chunks = iter(store.reader.export())
        begun = [next(chunks), next(chunks)]
        while store.journal.expire(1000).result():
            pass
        log_bytes = path.with_name(f"{path.name}-wal").stat().st_size
        rest = list(chunks)

    assert log_bytes == 0
    assert b"SECRET" not in b"".join([*begun, *rest])
    assert msgspec.json.decode(rest[-1]) == {"line": "end", "events": 9, "position": 9}


def changed(number: int, line: bytes) -> Callable[[list[bytes]], list[bytes]]:
    return lambda lines: [*lines[: number - 1], line, *lines[number:]]


EVENT = b'{"line":"event","position":%d,"response_id":"%b","version":%d,"topic":"%b","event":%b}\n'
A = b"resp_" + b"a" * 32
PERSISTED = b'{"type":"response.persisted.v1","at_ms":1,"write_ms":1.0}'
EXPIRED = b'{"type":"response.content_expired.v1","at_ms":1}'
HISTORY = sorted((Path(__file__).parents[2] / "history").glob("*/*.jsonl"))
COMMIT = b'{"type":"response.persisted.v1","at_ms":1,"write_ms":1.0}'


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        (lambda lines: [], r"is truncated after line 0"),
        (lambda lines: lines[:-1], r"is truncated after line 18"),
        (lambda lines: [*lines[:-1], lines[-1][:-3]], r"Line 19 cannot be imported: it is truncated; "),
        (lambda lines: [*lines[:7], lines[7][:40]], r"Line 8 cannot be imported: it is truncated; "),
        (lambda lines: lines[1:], r"Line 1 cannot be imported: the header is missing"),
        (lambda lines: [*lines, lines[5]], r"Line 20 cannot be imported: the header is missing"),
        (lambda lines: [*lines[:4], *lines[5:]], r"Line \d+ cannot be imported: .* does not follow the last"),
        (
            lambda lines: [*lines[:17], *lines[18:]],
            r"Line 18 cannot be imported: expected 17 events, found 16",
        ),
        (lambda lines: [*lines[:4], lines[3], *lines[4:]], r"Line 5 .*position 3 is not after 3"),
        (
            changed(1, b'{"line":"header","format":"x","format_version":1}\n'),
            r"Line 1 .*Invalid enum value 'x'",
        ),
        (
            changed(1, b'{"line":"header","format":"turnlog.log","format_version":2}\n'),
            r"Line 1 .*unsupported format version 2, expected 1",
        ),
        (changed(3, b"nonsense\n"), r"Line 3 cannot be imported: JSON is malformed"),
        (changed(3, b'{"line":"party"}\n'), r"Line 3 cannot be imported: Invalid value 'party'"),
        (
            changed(2, EVENT % (1, A, 1, b"response.persisted.v1", COMMIT)),
            r"Line 2 .*its only creation event",
        ),
        (
            changed(
                4, EVENT % (3, b"resp_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 2, b"response.dreamt.v1", COMMIT)
            ),
            r"Line 4 .*\(response.dreamt.v1\)",
        ),
        (
            changed(
                4,
                EVENT
                % (3, b"resp_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 2, b"response.x", b'{"type":"response.x"}'),
            ),
            r"Line 4 .*cannot be read: Invalid value 'response.x'",
        ),
        (
            changed(4, b'{"line":"event","position":3,"response_id":"a","version":1,"topic":"b"}\n'),
            "the event is missing",
        ),
        (lambda lines: [*lines, *lines], r"Line 20 .*continues after position 0, expected 17"),
    ],
)
def test_an_import_that_fails_names_the_line_and_leaves_the_store_empty(
    filled: Path, tmp_path: Path, change: Callable[[list[bytes]], list[bytes]], refusal: str
) -> None:
    copy = tmp_path / "copy.db"

    with pytest.raises(StorageError, match=refusal):
        import_events(copy, change(exported(filled)))

    assert execute(copy, "SELECT count(*) FROM stored_events") == [(0,)]
    assert execute(copy, "SELECT count(*) FROM responses") == [(0,)]
    assert import_events(copy, exported(filled)) == 17


def with_text(number: int, old: bytes, new: bytes) -> Callable[[list[bytes]], list[bytes]]:
    def change(lines: list[bytes]) -> list[bytes]:
        assert old in lines[number - 1]
        return [*lines[: number - 1], lines[number - 1].replace(old, new, 1), *lines[number:]]

    return change


DEEP = b"[" * 100_000 + b"]" * 100_000
HUGE = b"9" * 300


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        (with_text(2, b'"owner":"ada"', b'"owner":"a/../b"'), "Line 2 .*owner: 'a/../b' is no owner's name"),
        (with_text(2, b'"owner":"ada"', b'"owner":""'), "Line 2 .*owner: '' is no owner's name"),
        (
            lambda lines: [line.replace(b"resp_a", b"resp_z") for line in lines],
            "Line 2 .*response_id: 'resp_z",
        ),
        (
            with_text(
                3,
                b'"previous_response_id":"resp_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',
                b'"previous_response_id":"msg_a',
            ),
            "Line 3 .*previous_resp",
        ),
        (with_text(6, b'"id":"msg_a', b'"id":"rs_a'), "Line 6 .*item.id: 'rs_a"),
        (with_text(2, b'"at_ms":1000', b'"at_ms":-1'), "Line 2 .*at_ms: -1 is not from 0"),
        (with_text(2, b'"at_ms":1000', b'"at_ms":253402300800000'), "Line 2 .*at_ms: 253402300800000 is not"),
        (with_text(2, b'"at_ms":1000', b'"at_ms":' + HUGE), r"Line 2 .*(at_ms|out of range)"),
        (with_text(2, b'"expires_at":2000', b'"expires_at":9999999999999'), "Line 2 .*expires_at"),
        (with_text(2, b'"seed":7', b'"seed":18446744073709551616'), "Line 2 .*sampling.seed"),
        (with_text(6, b'"output_index":0', b'"output_index":9223372036854775808'), "Line 6 .*output_index"),
        (with_text(12, b'"input_tokens":3', b'"input_tokens":-3'), "Line 12 .*usage.input_tokens"),
        (
            with_text(2, b'"input":[', b'"metadata":{"k":' + DEEP + b'},"input":['),
            "Line 2 cannot be imported",
        ),
        (with_text(2, b'"version":1', b'"version":' + HUGE), "Line 2 cannot be imported"),
        (with_text(2, b'"position":1', b'"position":1e400'), "Line 2 cannot be imported"),
        (changed(2, DEEP + b"\n"), "Line 2 cannot be imported"),
        (with_text(14, b"response.persisted.v1", b"response.dreamt.v1"), "Line 14 cannot be imported"),
        (
            changed(12, EVENT % (11, A, 6, b"response.persisted.v1", PERSISTED)),
            "Line 12 .*cannot persist a response that is in_progress",
        ),
        (
            changed(4, EVENT % (3, A, 2, b"response.content_expired.v1", EXPIRED)),
            "Line 4 .*cannot expire a response that is created",
        ),
    ],
)
def test_what_no_server_writes_is_refused_by_line_and_field(
    filled: Path, tmp_path: Path, change: Callable[[list[bytes]], list[bytes]], refusal: str
) -> None:
    copy = tmp_path / "copy.db"

    with pytest.raises(StorageError, match=refusal) as refused:
        import_events(copy, change(exported(filled)))

    assert len(refused.value.message) < 500
    assert execute(copy, "SELECT count(*) FROM stored_events") == [(0,)]


@pytest.mark.parametrize("story", HISTORY, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_what_an_older_server_wrote_is_imported(tmp_path: Path, story: Path) -> None:
    events = story.read_bytes().splitlines()
    response_id = msgspec.json.decode(events[0])["response_id"].encode()
    topics = [msgspec.json.decode(event)["type"].encode() for event in events]
    lines = [
        EVENT % (number, response_id, number, topic, event)
        for number, (topic, event) in enumerate(zip(topics, events, strict=True), start=1)
    ]
    ends = b'{"line":"end","events":%d,"position":%d}\n' % (len(lines), len(lines))

    head = b'{"line":"header","format":"turnlog.log","format_version":1}\n'
    assert import_events(tmp_path / "copy.db", [head, *lines, ends]) == len(events)


def test_a_store_with_events_is_not_imported_into(filled: Path) -> None:
    before = execute(filled, EVERYTHING)

    with pytest.raises(StorageError, match=f"The event store '{filled}' is not empty"):
        import_events(filled, exported(filled))

    assert execute(filled, EVERYTHING) == before


def test_a_store_in_use_is_not_imported_into(filled: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"

    with closing(StoreLock(copy)), pytest.raises(StorageError, match=f"The event store '{copy}' is in use"):
        import_events(copy, exported(filled))

    assert copy.read_bytes() == b""


def test_an_import_tells_how_far_it_is(filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "EVENTS_PER_REPORT", 10)
    told: list[int] = []

    import_events(tmp_path / "copy.db", exported(filled), told.append)

    assert told == [10, 17]


def test_a_pass_over_a_store_that_is_no_more_says_so(filled: Path) -> None:
    with closing(open_reader(filled)) as reader:
        execute(filled, "DROP TABLE stored_events")

        with pytest.raises(StorageError, match=r"The events could not be exported: no such table"):
            reader.export()


def test_a_pass_over_a_store_that_is_closed_says_so(filled: Path) -> None:
    with closing(open_reader(filled)) as reader:
        told = reader.export()

    with pytest.raises(StorageError, match="The events could not be exported"):
        list(told)


LINES: list[Line] = [
    Header(format="turnlog.log", format_version=1, after=3, since_ms=5),
    *(
        EventLine(
            position=n,
            response_id="resp_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
            version=n,
            topic="t",
            event=Raw(b'"%b"' % (b"x" * 9 * n)),
        )
        for n in range(4, 9)
    ),
    EndLine(events=5, position=11),
]
WHOLE = [msgspec.json.encode(line) + b"\n" for line in LINES]
POSITIONS = [3, 4, 5, 6, 7, 8, 11]


@given(st.integers(len(WHOLE[0]), sum(map(len, WHOLE))), st.sampled_from([1, 7, 64, 65536]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_wherever_a_file_is_cut_its_whole_lines_count(tmp_path: Path, cut: int, step: int) -> None:
    file = tmp_path / "log.jsonl"
    file.write_bytes(b"".join(WHOLE)[:cut])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transfer, "_STEP_BYTES", step)
        found = reached(file)

    whole = list(accumulate(map(len, WHOLE)))
    last = max(n for n, end in enumerate(whole) if end <= cut)
    assert (found.position, found.whole_bytes) == (POSITIONS[last], whole[last])
    assert (found.complete, found.since_ms, found.until_ms) == (last == len(LINES) - 1, 5, None)


@pytest.mark.parametrize("content", [b"", b"\n", b"hello\n", WHOLE[1], WHOLE[0][:-1], WHOLE[0] + b"hello\n"])
def test_a_file_that_is_no_export_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)

    with pytest.raises(StorageError, match="is no export of turnlog"):
        reached(tmp_path / "file")
