"""`turnlog serve`."""

import asyncio
import logging
import os
import sys
from functools import partial
from typing import Any

import click
import msgspec

from app.bootstrap import load_engines
from app.cli.common import db_option, out, progress_bar, refusing
from app.server import open_socket, serve, url
from app.settings import Settings, load_settings


@click.command("serve")
@click.option("--host", help="Address to listen on (default 127.0.0.1).")
@click.option("--port", help="Port to listen on (default 8000; 0 takes a free one).")
@db_option
@click.option(
    "--model", multiple=True, metavar="NAME=PATH", help="Serve an MLX model folder under a name; repeatable."
)
@click.option("--engine", help="mlx (default), or scripted: play a file instead of a model.")
@click.option("--script", metavar="FILE", help="The file that the scripted engine plays.")
def serve_command(**options: Any) -> None:
    """Serve /v1/responses. Without --model it serves smollm2, which it prepares at its first start."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    with refusing():
        settings = load_settings(os.environ, options)
        with open_socket(settings.host, settings.port) as listener:
            with progress_bar() as progress:
                engines = load_engines(settings, progress)
            ready = partial(announce, settings, url(listener), list(engines))
            asyncio.run(serve(settings, engines, listener, ready))


def announce(settings: Settings, address: str, models: list[str]) -> None:
    """Say where the server answers and give a line to try."""
    body = msgspec.json.encode({"model": models[0], "input": "What is the capital of France?"}).decode()
    out.print(f"turnlog serves [bold]{', '.join(models)}[/] on [bold]{address}[/], log in {settings.db}")
    out.print("Try:")
    out.print(f"  curl {address}/v1/responses -H 'Content-Type: application/json' \\", highlight=False)
    out.print(f"    -d '{body}'", highlight=False, markup=False)
