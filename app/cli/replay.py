"""`turnlog replay`: run a turn again, tell it again, check it, or bring failed turns back."""

import sys
from typing import Any

import click
from rich.markup import escape
from rich.text import Text

from turnlog.app.cli.console import err, fail, out, print_json, refusing
from turnlog.app.cli.failed_turns import replay_failed
from turnlog.app.cli.options import database, db_option
from turnlog.app.cli.own_server import any_server
from turnlog.app.cli.printing import printable
from turnlog.app.cli.rerun import replay_body, replay_events
from turnlog.app.cli.server import Server

Json = dict[str, Any]

EXIT_FAILED = 1
"""A turn that was run again did not end well."""


@click.command("replay")
@click.argument("response_id", required=False)
@click.option("--check", is_flag=True, help="Run it with its own seed and say whether it answers the same.")
@click.option("--tell", is_flag=True, help="Print what was streamed, from the log; no model is asked.")
@click.option(
    "--pace",
    type=click.Choice(["fast", "original"]),
    default="fast",
    show_default=True,
    help="How fast --tell goes.",
)
@click.option("--model", metavar="NAME", help="Run it on another model.")
@click.option(
    "--seed",
    type=click.Choice(["same", "new"]),
    default="same",
    show_default=True,
    help="Its own seed, or one drawn anew.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="Change a setting, such as temperature=0.2.",
)
@click.option(
    "--failed", is_flag=True, help="All that failed and were not brought back, instead of one turn."
)
@click.option("--since", metavar="WHEN", help="With --failed: those made since then: 1h (ago), 2d or a date.")
@click.option("--until", metavar="WHEN", help="With --failed: those made before then.")
@click.option("--reason", metavar="R", help="With --failed: those that failed for it, such as error.")
@click.option("--of-model", metavar="NAME", help="With --failed: those of this model.")
@click.option("--dry-run", is_flag=True, help="With --failed: list them, and run nothing.")
@click.option("--json", "as_json", is_flag=True, help="JSON, one object a line.")
@db_option
def replay_command(response_id: str | None, db: str | None, **options: Any) -> None:
    """Replay a turn that is over.

    It is done by the running server of the log. If none runs, one is started for it, with the models that
    the TURNLOG_* variables name.

    \b
    There are three kinds:
      re-run   the same input through the model again (the default): a new
               response, with its own id, that names the original
      re-tell  the stream that was told, again from the log (--tell)
      check    a re-run with the same seed on the same model that reports
               "identical", or the first token that differs (--check)

    With --failed and no RESPONSE_ID it re-runs the turns that failed, the oldest first, beside the live ones
    and never before them. What a conversation goes on from is its client's decision: it sees the new response
    only if it is told its id.
    """
    _refuse_what_does_not_go_together(response_id, options)
    with refusing(), any_server(database(db)) as server:
        if response_id is None:
            sys.exit(0 if replay_failed(server, options) else EXIT_FAILED)
        elif options["check"]:
            _check(server, response_id, as_json=options["as_json"])
        else:
            sys.exit(0 if _run(server, response_id, options) else EXIT_FAILED)


def _refuse_what_does_not_go_together(response_id: str | None, options: Json) -> None:
    if (response_id is None) != options["failed"]:
        fail("name a RESPONSE_ID, or use --failed to replay those that failed; 'turnlog ls' lists responses")
    if options["check"] and options["tell"]:
        fail("--check and --tell are different kinds of replay; choose one")
    changed = [name for name in ("model", "settings") if options[name]]
    if (options["check"] or options["tell"]) and (changed or options["seed"] == "new"):
        fail("--check and --tell change nothing; leave out --model, --seed and --set")
    if response_id is not None:
        for name in ("since", "until", "reason", "of_model", "dry_run"):
            if options[name]:
                fail(f"--{name.replace('_', '-')} is for --failed; '{response_id}' is one turn")


def _check(server: Server, response_id: str, *, as_json: bool) -> None:
    verdict = server.post(f"/v1/responses/{response_id}/replay", {"kind": "check"})
    if as_json:
        print_json(verdict)
        return
    difference = verdict["first_difference"]
    if verdict["identical"]:
        out.print(f"[bold green]identical[/] in {verdict['compared']}; the check is {verdict['replay']}")
        return
    out.print(f"[bold red]different[/]; the check is {verdict['replay']}")
    if not verdict["same_prompt"]:
        out.print("  the model was given another prompt than at that time")
    if difference:
        unit = "token" if verdict["compared"] == "tokens" else "character"
        out.print(f"  first at {unit} {difference['index']} (counted from 0):")
        for which in ("original", "replay"):
            out.print(f"    {which:8}  {_place(difference[which])}")
    if not verdict["alone"]:
        out.print("  one of the two shared the engine with other turns, which can change the last bits")


def _place(what: Json | None) -> str:
    if what is None:
        return "[dim]the answer had ended[/]"
    number = f"{what['token']} " if "token" in what else ""
    return f"{number}{escape(repr(what['text']))}"


def _run(server: Server, response_id: str, options: Json) -> bool:
    """Print the answer as it comes, then what became of it; whether there is one."""
    body = replay_body(options) | {"kind": "retell" if options["tell"] else "rerun", "stream": True}
    if options["tell"]:
        body["pace"] = options["pace"]
    response: Json = {}
    for event in replay_events(server, response_id, body):
        if options["as_json"]:
            print_json(event)
        elif event["type"] == "response.output_text.delta":
            out.print(Text(printable(event["delta"])), end="")
        response = event.get("response", response)
    if not options["as_json"]:
        out.print()
        if error := response["error"]:
            err.print(f"[red]failed:[/] {escape(error['message'])}")
        told = "told again" if options["tell"] else f"a replay of {response_id}"
        out.print(f"[dim]{response['id']} {response['status']}, {told}[/]")
    return bool(options["tell"] or response["status"] != "failed")
