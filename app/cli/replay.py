"""`turnlog replay`: re-run, re-stream or check a turn, or retry failed turns."""

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
@click.option("--check", is_flag=True, help="Re-run with the original seed and compare the answers.")
@click.option("--restream", is_flag=True, help="Stream the stored answer from the log, without a model.")
@click.option("--tell", is_flag=True, hidden=True)
@click.option(
    "--pace",
    type=click.Choice(["fast", "original"]),
    default="fast",
    show_default=True,
    help="Speed of --restream.",
)
@click.option("--model", metavar="NAME", help="Run on another model.")
@click.option(
    "--seed",
    type=click.Choice(["same", "new"]),
    default="same",
    show_default=True,
    help="The original seed, or a new one.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="Override a parameter, such as temperature=0.2; repeatable.",
)
@click.option("--failed", is_flag=True, help="Re-run all failed turns not yet retried, instead of one turn.")
@click.option("--since", metavar="WHEN", help="With --failed: created since then: 1h (ago), 2d or a date.")
@click.option("--until", metavar="WHEN", help="With --failed: created before then.")
@click.option("--reason", metavar="R", help="With --failed: failed for this reason, such as error.")
@click.option("--of-model", metavar="NAME", help="With --failed: of this model only.")
@click.option("--dry-run", is_flag=True, help="With --failed: list the turns without running them.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@db_option
def replay_command(response_id: str | None, db: str | None, **options: Any) -> None:
    """Replay a finished turn.

    The running server of the log does the work. If there is none, one is started for this command, with the
    models that the TURNLOG_* variables declare.

    \b
    There are three kinds:
      re-run     run the same input again (the default); the new response
                 has its own id and refers to the original
      re-stream  stream the stored answer again (--restream)
      check      re-run with the same seed and model, and report "identical"
                 or the first token that differs (--check)

    With --failed and no RESPONSE_ID, re-run the failed turns, oldest first; live turns take precedence.
    Clients see the new responses only if you give them the ids.
    """
    options["restream"] |= options.pop("tell")  # its name in 0.1
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
        fail("Expected either a RESPONSE_ID or --failed. List responses with 'turnlog ls'.")
    if options["check"] and options["restream"]:
        fail("--check and --restream exclude each other.")
    changed = [name for name in ("model", "settings") if options[name]]
    if (options["check"] or options["restream"]) and (changed or options["seed"] == "new"):
        fail("--check and --restream cannot be combined with --model, --seed new or --set.")
    if response_id is not None:
        for name in ("since", "until", "reason", "of_model", "dry_run"):
            if options[name]:
                fail(f"--{name.replace('_', '-')} requires --failed.")


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
        out.print("  the prompts differ")
    if difference:
        unit = "token" if verdict["compared"] == "tokens" else "character"
        out.print(f"  first at {unit} {difference['index']} (counted from 0):")
        for which in ("original", "replay"):
            out.print(f"    {which:8}  {_place(difference[which])}")
    if not verdict["alone"]:
        out.print("  one of them was batched with other turns, which can change the last bits")


def _place(what: Json | None) -> str:
    if what is None:
        return "[dim]the answer had ended[/]"
    number = f"{what['token']} " if "token" in what else ""
    return f"{number}{escape(repr(what['text']))}"


def _run(server: Server, response_id: str, options: Json) -> bool:
    """Print the answer as it comes, then what became of it; whether there is one."""
    body = replay_body(options) | {"kind": "retell" if options["restream"] else "rerun", "stream": True}
    if options["restream"]:
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
        what = "streamed again" if options["restream"] else f"replay of {response_id}"
        out.print(f"[dim]{response['id']} {response['status']}, {what}[/]")
    return bool(options["restream"] or response["status"] != "failed")
