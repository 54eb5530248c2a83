"""`turnlog backup` makes a log like any other: beside a server, without one, and for nobody else."""

from contextlib import closing
from pathlib import Path

from tests.app.http.keyed import keyed_serving
from tests.app.http.test_turns import create
from tests.app.scripts import write_script
from tests.serving import serving, turnlog
from turnlog.adapters.eventstore.store import open_reader


def ids_in(path: Path) -> list[str]:
    with closing(open_reader(path)) as reader:
        return reader.ids_beginning("resp_", limit=100).result()


def test_a_log_is_copied_with_and_without_its_server(tmp_path: Path) -> None:
    database, options = tmp_path / "turnlog.db", ("--db", str(tmp_path / "turnlog.db"))
    script = ("--engine", "scripted", "--script", str(write_script(tmp_path)))
    with serving(database, *script) as server, server.http as http:
        response_id = create(http, "hi")["id"]
        beside = turnlog("backup", str(tmp_path / "beside.db"), *options)
        again = turnlog("backup", str(tmp_path / "beside.db"), *options)
    alone = turnlog("backup", str(tmp_path / "alone.db"), *options)
    nothing = turnlog("backup", str(tmp_path / "nothing.db"), "--db", str(tmp_path / "no.db"))

    assert (beside.returncode, alone.returncode) == (0, 0), beside.stderr + alone.stderr
    assert ids_in(tmp_path / "beside.db") == ids_in(tmp_path / "alone.db") == [response_id]
    assert (again.returncode, nothing.returncode) == (2, 2)
    assert again.stderr == f"turnlog: '{tmp_path / 'beside.db'}' exists. Name a new file.\n"
    assert "No event store at" in nothing.stderr
    with serving(tmp_path / "beside.db", *script) as server, server.http as http:
        assert http.get(f"/v1/responses/{response_id}").json()["status"] == "completed"


def test_nobody_else_has_the_server_write_a_file(tmp_path: Path) -> None:
    """Not even an operator's key; the command line on the same machine has the server's token."""
    target = tmp_path / "copy.db"
    with keyed_serving(tmp_path) as keyed, keyed.client("olga") as http:
        refused = http.post("/v1/operations/backup", json={"path": str(target)})
        token = {"Authorization": f"Bearer {keyed.operator_token}"}
        relative = http.post("/v1/operations/backup", json={"path": "copy.db"}, headers=token)
        made = http.post("/v1/operations/backup", json={"path": str(target)}, headers=token)

    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "forbidden")
    assert (relative.status_code, relative.json()["error"]["param"]) == (400, "path")
    assert made.json() == {
        "object": "operation.backup",
        "path": str(target),
        "size_bytes": target.stat().st_size,
    }
