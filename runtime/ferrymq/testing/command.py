"""`ferrymq testing`: a broker for the tests of programs in any language."""

from __future__ import annotations

import asyncio
import signal
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from ferrymq.testing.local_broker import LocalBroker


def testing(
    port: Annotated[
        int,
        typer.Option(
            metavar="PORT", min=0, max=65535, help="The port for AMQP; 0 is any free port."
        ),
    ] = 0,
    http_port: Annotated[
        int,
        typer.Option(
            metavar="PORT", min=0, max=65535, help="The port for HTTP; 0 is any free port."
        ),
    ] = 0,
    queue: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A queue to make; repeatable.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A TOML file with nodes and limits; see docs/broker."),
    ] = None,
) -> None:
    """Run a broker for tests: over HTTP, tests advance its clock, set faults and read queues.

    Both ports are those of 127.0.0.1. Nothing is stored. Prints "listening URL", "http URL" and
    "ready", and runs until SIGTERM or Ctrl-C.
    """
    # The help of all commands imports this module, and needs no broker.
    from ferrymq.testing.local_broker import LocalBroker

    settings: dict[str, Any] = {}
    if config is not None:
        settings = tomllib.loads(config.read_text("utf-8"))
        for name in ("listener", "http", "store", "capture", "log"):
            settings.pop(name, None)
    try:
        broker = LocalBroker(queues=queue or [], config=settings, port=port)
    except ModuleNotFoundError as error:
        typer.echo(f"ferrymq: {error}", err=True)
        raise typer.Exit(1) from None
    with broker:
        asyncio.run(_serve(broker, http_port))


async def _serve(broker: LocalBroker, http_port: int) -> None:
    from ferrymq.testing.http_door import HttpDoor

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    if sys.platform != "win32":
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
    door = HttpDoor(broker, http_port)
    await door.start()
    try:
        for line in (f"listening {broker.url}", f"http {door.url}", "ready"):
            sys.stdout.write(line + "\n")
        sys.stdout.flush()
        await stop.wait()
    finally:
        await door.close()
