"""How far an export in a file has got, wherever it was cut off."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Raw, json

from turnlog.adapters.eventstore import resuming
from turnlog.adapters.eventstore.resuming import reached
from turnlog.adapters.eventstore.transfer import EndLine, EventLine, Header, Line
from turnlog.domain.errors import StorageError

LINES: list[Line] = [
    Header(format="turnlog.log", format_version=1, after=3, since_ms=5),
    *(
        EventLine(position=n, response_id="resp_a", version=n, topic="t", event=Raw(b'"%b"' % (b"x" * 9 * n)))
        for n in range(4, 9)
    ),
    EndLine(events=5, position=11),
]
WHOLE = [json.encode(line) + b"\n" for line in LINES]
POSITIONS = [3, 4, 5, 6, 7, 8, 11]


@given(st.integers(len(WHOLE[0]), sum(map(len, WHOLE))), st.sampled_from([1, 7, 64, 65536]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_wherever_a_file_is_cut_its_whole_lines_count(tmp_path: Path, cut: int, step: int) -> None:
    file = tmp_path / "log.jsonl"
    file.write_bytes(b"".join(WHOLE)[:cut])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resuming, "_STEP_BYTES", step)
        found = reached(file)

    whole = [sum(map(len, WHOLE[: n + 1])) for n in range(len(WHOLE))]
    last = max(n for n, end in enumerate(whole) if end <= cut)
    assert (found.position, found.whole_bytes) == (POSITIONS[last], whole[last])
    assert (found.complete, found.since_ms, found.until_ms) == (last == len(LINES) - 1, 5, None)


@pytest.mark.parametrize("content", [b"", b"\n", b"hello\n", WHOLE[1], WHOLE[0][:-1], WHOLE[0] + b"hello\n"])
def test_a_file_that_is_no_export_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)

    with pytest.raises(StorageError, match="is no export of turnlog"):
        reached(tmp_path / "file")
