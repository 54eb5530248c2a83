"""Sums of tokens and turns, over HTTP and by command (D-40)."""

import json
from pathlib import Path

import pytest

from tests.app.http.keyed import keyed_serving
from tests.app.http.test_turns import create, refused
from tests.serving import turnlog


@pytest.fixture(scope="module")
def summed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, object]], int]:
    """The log of two owners, what an auditor is told of it, and what a client is told."""
    with keyed_serving(tmp_path_factory.mktemp("usage")) as keyed:
        for name, texts in (("alice", ("hi", "hi")), ("bob", ("hi",))):
            with keyed.client(name) as http:
                for text in texts:
                    create(http, text)
                http.post("/v1/responses", json={"model": "scripted", "input": "boom"})
        with keyed.client("alice") as http:
            deleted = create(http, "one two three")
            http.delete(f"/v1/responses/{deleted['id']}").raise_for_status()
            forbidden = http.get("/v1/audit/usage").status_code
        with keyed.client("ada") as http:
            rows = http.get("/v1/audit/usage", params={"by": "owner,model", "since": "1h"}).json()["data"]
            assert refused(http.get("/v1/audit/usage?by=colour"), 400)["param"] == "by"
        return keyed.server.database, rows, forbidden


def test_turns_and_tokens_are_summed_by_owner_and_model(
    summed: tuple[Path, list[dict[str, object]], int],
) -> None:
    """D-40: those of deleted responses, too."""
    _, rows, forbidden = summed

    assert forbidden == 403
    assert [(row["owner"], row["model"], row["turns"], row["failed"]) for row in rows] == [
        ("alice", "scripted", 4, 1),
        ("bob", "scripted", 2, 1),
    ]
    assert [row["output_tokens"] for row in rows] == [6, 2]
    assert all(row["total_tokens"] == row["input_tokens"] + row["output_tokens"] for row in rows)  # type: ignore[operator]


def test_the_command_says_the_same(summed: tuple[Path, list[dict[str, object]], int]) -> None:
    path, rows, _ = summed

    lines = turnlog("usage", "--json", "--db", str(path)).stdout.splitlines()
    whole = turnlog("usage", "--by", "", "--json", "--db", str(path)).stdout
    table = turnlog("usage", "--by", "owner", "--db", str(path)).stdout

    assert [json.loads(line) for line in lines] == rows
    assert json.loads(whole)["turns"] == 6
    assert "alice" in table
    assert turnlog("usage", "--since", "2020-01-01", "--until", "2020-01-02", "--db", str(path)).stdout == ""


def test_an_export_of_an_owner_has_their_events_only(
    summed: tuple[Path, list[dict[str, object]], int], tmp_path: Path
) -> None:
    """D-40: a person's access; it can be imported as a log of its own."""
    path, *_ = summed
    file, other = tmp_path / "bob.jsonl", tmp_path / "bob.db"

    assert turnlog("export", "--owner", "bob", "--out", str(file), "--db", str(path)).returncode == 0
    assert turnlog("import", str(file), "--db", str(other)).returncode == 0

    assert b'"owner":"alice"' not in file.read_bytes()
    found = turnlog("ls", "--json", "--db", str(other)).stdout.splitlines()
    assert {json.loads(line)["owner"] for line in found} == {"bob"}
    assert len(found) == 2
