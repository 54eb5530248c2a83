"""`turnlog serve`."""

import asyncio
import logging
import os
import sys
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import Any

import click
import msgspec
from rich.markup import escape

from turnlog.app.cli.console import out, progress_bar, refusing
from turnlog.app.cli.options import db_option
from turnlog.app.cli.printing import printable
from turnlog.app.operations.line_queue import LineQueue
from turnlog.app.operations.logs import set_up_logs
from turnlog.app.server.bootstrap import key_file
from turnlog.app.server.engines import Progress, declare_models
from turnlog.app.server.server import check_exposure, open_socket, serve, url
from turnlog.app.settings import Settings, ignored_variables, load_settings

log = logging.getLogger("turnlog")


@click.command("serve")
@click.option("--host", help="Address to listen on (default 127.0.0.1).")
@click.option("--port", help="Port to listen on (default 8000; 0 takes a free one).")
@db_option
@click.option(
    "--model",
    multiple=True,
    metavar="NAME=PATH",
    help="Serve an MLX model folder under this name; repeatable.",
)
@click.option("--default", metavar="NAME", help="The model for requests that name an unknown model.")
@click.option(
    "--sampling",
    multiple=True,
    metavar="NAME.FIELD=VALUE",
    help="Default of a sampling parameter, such as qwen.temperature=0.6; repeatable.",
)
@click.option("--engine", help="mlx (default), or scripted to play a script instead of running a model.")
@click.option("--script", metavar="FILE", help="The script for the scripted engine.")
def serve_command(**options: Any) -> None:
    """Serve /v1/responses and /v1/chat/completions.

    Without --model, serve smollm2, which is downloaded on the first start. Each option can also be set by an
    environment variable: --port is TURNLOG_PORT.
    """
    with refusing(), LineQueue(sys.stderr) as lines:
        settings = load_settings(os.environ, options)
        set_up_logs(settings.log_format, settings.log_level, lines)
        for sentence in ignored_variables(os.environ):
            log.warning("%s", sentence)
        with open_socket(settings.host, settings.port) as listener:
            keyed = check_exposure(listener, key_file(settings))
            with preparing(settings) as progress:
                sources = declare_models(settings, progress)
            ready = partial(announce_if_read, settings, url(listener), list(sources), keyed=keyed)
            asyncio.run(serve(settings, sources, listener, ready))


def preparing(settings: Settings) -> AbstractContextManager[Progress]:
    """Shows what is being prepared to people, or logs it where lines are JSON."""
    if settings.log_format == "text":
        return progress_bar()
    told: set[str] = set()

    def progress(what: str, _: float) -> None:
        if what not in told:
            told.add(what)
            log.info("[models] %s", what)

    return nullcontext(progress)


def announce_if_read(settings: Settings, address: str, models: list[str], *, keyed: bool) -> None:
    """Announce the server; it goes on, too, if nobody reads that any more (`turnlog serve | head -1`)."""
    # That is what rich makes of a broken pipe.
    with suppress(SystemExit):
        announce(settings, address, models, keyed=keyed)


def announce(settings: Settings, address: str, models: list[str], *, keyed: bool) -> None:
    """Say where the server answers and give a line to try."""
    body = msgspec.json.encode({"model": models[0], "input": "What is the capital of France?"}).decode()
    names, database = (escape(printable(text)) for text in (", ".join(models), str(settings.db)))
    served = f"turnlog serves [bold]{names}[/] on [bold]{address}[/], log in {database}"
    out.print(served, highlight=True)
    out.print("Try:")
    out.print(f"  curl {address}/v1/responses -H 'Content-Type: application/json' \\")
    if keyed:
        out.print("    -H 'Authorization: Bearer KEY' \\")
    out.print(f"    -d '{body}'", markup=False)
