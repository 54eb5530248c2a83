"""A log goes into a file and out of it again: from outside, and whatever happens to the file on the way."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from tests.adapters.eventstore.stories import execute, opened, turn
from tests.app.commands import command, refusal, told
from tests.app.scripts import write_script
from tests.serving import RunningServer, serving

Json = dict[str, Any]

CONVERSATIONS = 60
ASKED = ("hi", "think", "call one", "cut", "boom")
"""What each conversation says; the last of it fails."""


class Sent(NamedTuple):
    """A turn as its client knows it."""

    response_id: str
    model: str
    stream: bytes


class Filled(NamedTuple):
    """A server with some hundred turns, by conversation."""

    server: RunningServer
    sent: list[list[Sent]]
    arguments: tuple[str, ...]

    @property
    def turns(self) -> list[Sent]:
        return [each for conversation in self.sent for each in conversation]


def converse(http: httpx.Client, model: str) -> list[Sent]:
    """A conversation, every turn of which is streamed."""
    sent: list[Sent] = []
    for text in ASKED:
        body = {"model": model, "input": text, "stream": True, "truncation": "auto"}
        # A call wants its output before anything else, so what follows it begins anew.
        if sent and b'"function_call"' not in sent[-1].stream:
            body["previous_response_id"] = sent[-1].response_id
        told_bytes = http.post("/v1/responses", json=body).content
        opening = json.loads(told_bytes.split(b"data: ")[1].split(b"\n")[0])
        sent.append(Sent(opening["response"]["id"], model, told_bytes))
    # Answered once the last event of the turn is stored.
    for each in sent:
        http.get(f"/v1/responses/{each.response_id}/events").raise_for_status()
    return sent


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    """A server with two models and what it was told."""
    folder = tmp_path_factory.mktemp("transfer")
    script = write_script(folder)
    models = [option for name in ("alpha", "beta") for option in ("--model", f"{name}={script}")]
    arguments = ("--engine", "scripted", *models)
    with serving(folder / "turnlog.db", *arguments) as server, server.http as http:
        with ThreadPoolExecutor(8) as threads:
            wanted = ["alpha", "beta"] * (CONVERSATIONS // 2)
            sent = list(threads.map(lambda model: converse(http, model), wanted))
        yield Filled(server, sent, arguments)


def test_the_failed_turns_of_one_model_are_found_page_by_page(filled: Filled) -> None:
    failed = {
        each.response_id for each in filled.turns if each.model == "beta" and b'"it broke"' in each.stream
    }
    found: list[str] = []
    with filled.server.http as http:
        page: Json = {"has_more": True, "last_id": None}
        while page["has_more"]:
            after = {"after": page["last_id"]} if page["last_id"] else {}
            query = {"status": "failed", "model": "beta", "limit": "7", **after}
            page = http.get("/v1/audit/responses", params=query).raise_for_status().json()
            found += [row["id"] for row in page["data"]]
    listed = told(
        filled.server.database, "ls", "--status", "failed", "--model", "beta", "--limit", "1000", "--json"
    )

    assert len(failed) == CONVERSATIONS // 2
    assert (len(found), set(found)) == (len(failed), failed)
    assert [json.loads(line)["id"] for line in listed.splitlines()] == found


def test_a_conversation_is_read_from_its_last_turn(filled: Filled) -> None:
    conversation = filled.sent[0]
    with filled.server.http as http:
        nodes = http.get(f"/v1/audit/chains/{conversation[2].response_id}").json()["data"]

    assert [(node["id"], node["asked"], node["answered"]) for node in nodes] == [
        (conversation[0].response_id, "hi", "Hello"),
        (conversation[1].response_id, "think", "Hi"),
        (conversation[2].response_id, "call one", '[calls add {"a":1}]'),
    ]


@pytest.mark.parametrize("way", ["http", "command"])
def test_an_imported_log_streams_the_same_bytes(filled: Filled, tmp_path: Path, way: str) -> None:
    """The very bytes that clients got while the turns ran."""
    export, elsewhere = tmp_path / "log.jsonl", tmp_path / "elsewhere.db"
    if way == "http":
        with filled.server.http as http:
            export.write_bytes(http.get("/v1/audit/export").raise_for_status().content)
    else:
        told(filled.server.database, "export", "--out", str(export))
    assert "Imported " in told(elsewhere, "import", str(export))

    with serving(elsewhere, *filled.arguments) as server, server.http as http:
        again = [http.get(f"/v1/responses/{each.response_id}?stream=true").content for each in filled.turns]
        rows = http.get("/v1/audit/responses?limit=1000").json()
    with filled.server.http as http:
        original = http.get("/v1/audit/responses?limit=1000").json()

    assert again == [each.stream for each in filled.turns]
    assert rows == original
    assert len(rows["data"]) == CONVERSATIONS * len(ASKED)


def test_commands_that_take_a_log_for_themselves_say_that_the_server_must_stop(
    filled: Filled, tmp_path: Path
) -> None:
    export = tmp_path / "log.jsonl"
    told(filled.server.database, "export", "--out", str(export))

    for arguments in (("import", str(export)), ("reindex",), ("vacuum",)):
        line = refusal(filled.server.database, *arguments)
        assert filled.server.address in line
        assert line.endswith("Stop the server and try again.")


# ── files ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log with three turns."""
    path = tmp_path / "turnlog.db"
    with opened(path) as store:
        for name in (
            "resp_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
            "resp_bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb",
            "resp_cccccccccccccccccccccccccccccccc",
        ):
            store.journal.append(turn(name)).result()
    return path


def events(path: Path) -> list[tuple[Any, ...]]:
    """Everything that is in a log, in its order."""
    return execute(
        path,
        "SELECT originator_id, originator_version, topic, state FROM stored_events ORDER BY rowid",
    )


def rows(path: Path) -> list[tuple[Any, ...]]:
    """What look-ups stand on."""
    return execute(path, "SELECT * FROM responses ORDER BY n")


@pytest.mark.parametrize("kept", [0.3, 0.5, 0.999])
def test_an_export_that_was_cut_off_is_gone_on_with(log: Path, tmp_path: Path, kept: float) -> None:
    export, elsewhere = tmp_path / "log.jsonl", tmp_path / "elsewhere.db"
    told(log, "export", "--out", str(export))
    whole = export.read_bytes()
    export.write_bytes(whole[: int(len(whole) * kept)])
    cut = command(elsewhere, "import", str(export))

    told(log, "export", "--resume", "--out", str(export))
    told(elsewhere, "import", str(export))

    assert (cut.exit_code, "truncated" in cut.stderr) == (2, True)
    assert (events(elsewhere), rows(elsewhere)) == (events(log), rows(log))


def test_an_export_is_gone_on_with_as_the_log_grows(log: Path, tmp_path: Path) -> None:
    export, elsewhere = tmp_path / "log.jsonl", tmp_path / "elsewhere.db"
    told(log, "export", "--resume", "--out", str(export))
    with opened(log) as store:
        store.journal.append(turn("resp_dddddddddddddddddddddddddddddddd")).result()
    told(log, "export", "--resume", "--out", str(export))
    before = export.read_bytes()

    assert "is up to date" in told(log, "export", "--resume", "--out", str(export))
    assert export.read_bytes() == before
    told(elsewhere, "import", str(export))
    assert events(elsewhere) == events(log)


def test_an_export_goes_on_with_the_times_it_was_begun_with(log: Path, tmp_path: Path) -> None:
    export = tmp_path / "log.jsonl"
    told(log, "export", "--until", "1.005", "--out", str(export))
    with opened(log) as store:
        store.journal.append(turn("resp_dddddddddddddddddddddddddddddddd")).result()

    assert "cannot be combined with" in refusal(
        log, "export", "--resume", "--since", "1d", "--out", str(export)
    )
    told(log, "export", "--resume", "--out", str(export))

    lines = [json.loads(line) for line in export.read_text(encoding="utf-8").splitlines()]
    times = [line["event"]["at_ms"] for line in lines if line["line"] == "event"]
    assert (len(times), max(times)) == (20, 1004)


def test_a_file_is_never_overwritten(log: Path, tmp_path: Path) -> None:
    export = tmp_path / "log.jsonl"
    export.write_text("what somebody wrote\n", encoding="utf-8")

    assert "already exists. Add --resume" in refusal(log, "export", "--out", str(export))
    assert "is no export of turnlog" in refusal(log, "export", "--resume", "--out", str(export))
    assert "could not be" in refusal(log, "export", "--resume", "--out", str(tmp_path))
    assert "No such file" in refusal(log, "export", "--out", str(tmp_path / "no" / "file"))
    assert export.read_text(encoding="utf-8") == "what somebody wrote\n"


def test_an_export_is_for_its_owner_alone(log: Path, tmp_path: Path) -> None:
    export = tmp_path / "log.jsonl"
    told(log, "export", "--out", str(export))

    assert export.stat().st_mode & 0o777 == 0o600


def test_an_export_goes_through_a_pipe(log: Path, tmp_path: Path) -> None:
    piped = command(log, "export", "--out", "-")
    told(log, "export", "--out", str(tmp_path / "log.jsonl"))

    assert piped.stdout_bytes == (tmp_path / "log.jsonl").read_bytes()
    assert piped.stderr.endswith("Exported 21 events, up to position 21\n")


def test_an_import_wants_an_empty_log_and_a_file(log: Path, tmp_path: Path) -> None:
    export = tmp_path / "log.jsonl"
    told(log, "export", "--out", str(export))
    before = events(log)

    full = command(log, "import", str(export))
    missing = refusal(tmp_path / "new.db", "import", str(tmp_path / "missing"))

    assert (full.exit_code, "is not empty" in full.stderr, events(log)) == (2, True, before)
    assert "could not be read: No such file" in missing


def test_a_log_is_indexed_anew(log: Path) -> None:
    before = rows(log)
    execute(log, "DELETE FROM responses")

    assert "Indexed 21 events" in told(log, "reindex")
    assert rows(log) == before
