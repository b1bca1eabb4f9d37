"""``ferrymq pipeline work``: run workers whose failures become dead letters."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Annotated

import typer

from pyspark_ferrymq.cli.durations import seconds
from pyspark_ferrymq.cli.error_messages import told
from pyspark_ferrymq.cli.options import DEFAULT_URL, Json, Url
from pyspark_ferrymq.cli.progress import Bar
from pyspark_ferrymq.cli.security_options import access_options


@told
def work(
    address: Annotated[str, typer.Argument(help="The work queue.")] = "demo.parcels",
    url: Url = DEFAULT_URL,
    workers: Annotated[int, typer.Option(min=1, max=64, help="The number of workers.")] = 2,
    idle: Annotated[
        float,
        typer.Option(
            metavar="TIME", parser=seconds, help="End after this time without messages; 0: never."
        ),
    ] = 1.0,
    as_json: Json = False,
) -> None:
    """Process the parcels of the test traffic from their queue.

    Malformed messages are rejected with a condition and a description. Messages that a worker
    cannot process fail until their delivery-limit. Both become dead letters, which `triage` sorts.
    """
    from pyspark_ferrymq.traffic.run import run_workers

    options = access_options(url)
    with Bar(f"working on {address}", None) as bar:
        shift = asyncio.run(run_workers(options, address, workers, idle or None, bar.advance))
    if as_json:
        sys.stdout.write(json.dumps({"address": address, **shift.as_json()}) + "\n")
        return
    sys.stdout.write(f"{shift.done:,} done, {shift.failed:,} deliveries failed\n")
    for condition, count in sorted(shift.rejected.items()):
        sys.stdout.write(f"{count:,} rejected: {condition}\n")
