"""``ferrymq pipeline produce``: send test traffic for pipelines."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Annotated

import typer

from pyspark_ferrymq.cli.error_messages import told
from pyspark_ferrymq.cli.options import DEFAULT_URL, Json, Url
from pyspark_ferrymq.cli.progress import Bar
from pyspark_ferrymq.cli.security_options import access_options

Share = Annotated[float, typer.Option(min=0.0, max=0.5, metavar="SHARE")]


@told
def produce(
    url: Url = DEFAULT_URL,
    seed: Annotated[int, typer.Option(help="The same seed makes the same messages.")] = 1,
    count: Annotated[int, typer.Option(min=1, help="How many messages.")] = 10_000,
    rate: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            metavar="N",
            help="Messages per second, averaged over a day. Default: as fast as possible.",
            show_default=False,
        ),
    ] = None,
    speed: Annotated[
        float,
        typer.Option(
            min=0.001, help="Seconds of traffic time per second: at 1440 a day takes a minute."
        ),
    ] = 1440.0,
    late: Annotated[
        float, typer.Option(min=0, max=0.5, metavar="SHARE", help="Share of late messages.")
    ] = 0.01,
    duplicates: Annotated[
        float, typer.Option(min=0, max=0.5, metavar="SHARE", help="Share of duplicate messages.")
    ] = 0.01,
    poison: Annotated[
        float, typer.Option(min=0, max=0.5, metavar="SHARE", help="Share of malformed messages.")
    ] = 0.01,
    prefix: Annotated[str, typer.Option(help="The prefix of all addresses.")] = "demo",
    streams: Annotated[bool, typer.Option(help="Whether streams get messages.")] = True,
    queues: Annotated[bool, typer.Option(help="Whether queues get messages.")] = True,
    create: Annotated[bool, typer.Option(help="Whether to create missing nodes.")] = True,
    as_json: Json = False,
) -> None:
    """Send the simulated traffic of a small shop and its vans, generated from a seed.

    Keys are skewed, the rate varies over the day, and some messages are late, duplicate or
    malformed. Prints what was sent to each address.
    """
    from pyspark_ferrymq.traffic import Ledger, Traffic
    from pyspark_ferrymq.traffic.run import run_producer

    try:
        traffic = Traffic(
            seed=seed, count=count, rate=rate, speed=speed, late=late, duplicates=duplicates,
            poison=poison, prefix=prefix, streams=streams, queues=queues,
        )  # fmt: skip
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    options = access_options(url)
    with Bar("sending", count) as bar:
        ledger: Ledger = asyncio.run(run_producer(options, traffic, create, bar.advance))
    if as_json:
        sys.stdout.write(json.dumps({**ledger.as_json(), "seconds": round(bar.seconds, 3)}) + "\n")
    else:
        _show(ledger, bar.seconds)


def _show(ledger: object, seconds: float) -> None:
    from rich.console import Console
    from rich.table import Table

    from pyspark_ferrymq.traffic import Ledger

    assert isinstance(ledger, Ledger)
    table = Table("address", box=None, header_style="bold")
    for column in ("messages", "KiB", "keys", "late", "twice", "poison"):
        table.add_column(column, justify="right")
    for address, counted in sorted(ledger.addresses.items()):
        figures = (
            counted.messages, counted.bytes // 1024, len(counted.keys), counted.late,
            counted.duplicates, sum(counted.poison.values()),
        )  # fmt: skip
        table.add_row(address, *(f"{figure:,}" for figure in figures))
    console = Console()
    console.print(table)
    console.print(
        f"{ledger.messages:,} messages in {seconds:.1f} s; digest {ledger.digest[:16]}",
        highlight=False,
    )
