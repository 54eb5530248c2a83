"""`turnlog replay --failed`: the turns that failed, run again beside the live ones."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import groupby
from typing import Any
from urllib.parse import quote, urlencode

from rich.progress import track

from turnlog.app.cli.console import err, out, print_json
from turnlog.app.cli.rerun import WELL, Replayed, replay_body, replayed
from turnlog.app.cli.server import Server, ServerRefusedError

Json = dict[str, Any]

PAGE = 1_000


def replay_failed(server: Server, options: Json) -> bool:
    """Run again what failed and was not brought back, the oldest first; whether all of it went well.

    As many at once as the model runs, each letting live turns go first.
    """
    wanted = list(_to_replay(server, options))
    if options["dry_run"] or not wanted:
        _list(wanted, as_json=options["as_json"])
        return True
    body = replay_body(options) | {"yields": True, "stream": True}
    done = list(track(_replay_all(server, wanted, body), "replaying", len(wanted), console=err))
    if not options["as_json"]:
        well = sum(one.went_well for one in done)
        out.print(f"{len(done)} replayed: {well} succeeded, {len(done) - well} failed")
    for one in done:
        _tell(one, as_json=options["as_json"])
    return all(one.went_well for one in done)


def _to_replay(server: Server, options: Json) -> Iterator[Json]:
    """The failed turns that the options name, without replays and without what a replay has made good."""
    asked = {"status": "failed", "order": "asc", "limit": PAGE}
    names = {"since": "since", "until": "until", "reason": "reason", "of_model": "model"}
    asked |= {name: options[option] for option, name in names.items() if options[option]}
    while True:
        page = server.get(f"/v1/audit/responses?{urlencode(asked)}")
        for row in page["data"]:
            if not row["replay_of"] and not _was_brought_back(server, row["id"]):
                yield row
        if not page["has_more"]:
            return
        asked["after"] = page["last_id"]


def _was_brought_back(server: Server, response_id: str) -> bool:
    asked = ({"replay_of": response_id, "status": status, "limit": 1} for status in WELL)
    return any(server.get(f"/v1/audit/responses?{urlencode(each)}")["data"] for each in asked)


def _replay_all(server: Server, rows: list[Json], body: Json) -> Iterator[Replayed]:
    """Model by model, as many at once as the model runs."""
    by_model = sorted(rows, key=lambda row: str(row["model"]))
    for model, group in groupby(by_model, key=lambda row: str(row["model"])):
        ids = [row["id"] for row in group]
        # The first one loads the model, if it must; how much it runs at once is known afterwards.
        yield replayed(server, ids[0], body)
        threads = ThreadPoolExecutor(_capacity(server, body.get("model", model)))
        try:
            runs = [threads.submit(replayed, server, response_id, body) for response_id in ids[1:]]
            for run in as_completed(runs):
                yield run.result()
        finally:
            # Whoever interrupts the command wants no more of them begun.
            threads.shutdown(cancel_futures=True)


def _capacity(server: Server, model: str) -> int:
    try:
        return int(server.get(f"/v1/models/{quote(model, safe='')}")["capacity"])
    except ServerRefusedError:
        return 1  # it is served no more, so each of its turns is refused, and those of other models go on


def _list(rows: Sequence[Json], *, as_json: bool) -> None:
    if as_json:
        print_json(*rows)
        return
    for row in rows:
        out.print(f"{row['id']}  {row['model']}  {row['reason']}")
    out.print(f"{len(rows)} failed turns not yet retried")


def _tell(one: Replayed, *, as_json: bool) -> None:
    if as_json:
        print_json(one)
    else:
        style = "green" if one.went_well else "red"
        what = f"{one.replay or 'not started':37}  [{style}]{one.status}[/]"
        out.print(f"{one.original}  {what}  {one.message or ''}")
