"""``ferrymq pipeline replay``: send a range of a stream again to another stream."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from pyspark_ferrymq.cli.error_messages import told
from pyspark_ferrymq.cli.options import (
    DEFAULT_MASTER,
    DEFAULT_URL,
    Conf,
    Json,
    Master,
    Report,
    SparkLog,
    Url,
)
from pyspark_ferrymq.cli.progress import Bar, Follower
from pyspark_ferrymq.cli.security_options import access_options
from pyspark_ferrymq.cli.session import session
from pyspark_ferrymq.errors import AmqpOptionError

if TYPE_CHECKING:
    from pyspark_ferrymq.capture.capture_reader import Bound

_SHAPE = 'a time as 2026-05-01T12:00, or offsets as {"0":100,"1":80}'


@told
def replay(
    stream: Annotated[str, typer.Argument(help="The stream.", show_default=False)],
    to: Annotated[
        str,
        typer.Option(
            metavar="STREAM",
            help="The target: an empty stream, or a new one to create.",
            show_default=False,
        ),
    ],
    checkpoint: Annotated[
        str,
        typer.Option(
            metavar="DIR", help="Directory for the progress, to continue.", show_default=False
        ),
    ],
    url: Url = DEFAULT_URL,
    archive: Annotated[
        str | None,
        typer.Option(
            metavar="DIR", help="Capture files of `archive` or the broker.", show_default=False
        ),
    ] = None,
    live: Annotated[
        bool, typer.Option(help="Whether to read records that are not archived.")
    ] = True,
    start: Annotated[
        str | None,
        typer.Option("--from", metavar="WHERE", help=f"The start: {_SHAPE}.", show_default=False),
    ] = None,
    end: Annotated[
        str | None,
        typer.Option("--until", metavar="WHERE", help="The end, excluded.", show_default=False),
    ] = None,
    step: Annotated[
        int, typer.Option(min=1, max=80_000, help="The number of records sent together.")
    ] = 40_000,
    annotate: Annotated[
        bool, typer.Option(help="Whether to annotate messages with their origin.")
    ] = True,
    report: Report = None,
    master: Master = DEFAULT_MASTER,
    conf: Conf = None,
    spark_log: SparkLog = None,
    as_json: Json = False,
) -> None:
    """Send a range of a stream again, unchanged, to another stream.

    If the command is killed and run again, it continues: no record is sent twice.
    """
    from pyspark_ferrymq.pipelines.replay import ReplayOptions, run
    from pyspark_ferrymq.pipelines.replay_report import write_report

    options = ReplayOptions(
        connection=access_options(url),
        stream=stream,
        target=to,
        checkpoint=checkpoint,
        archive=archive,
        live=live,
        start=_bound("--from", start),
        end=_bound("--until", end),
        step=step,
        annotate=annotate,
    )
    options.check()
    with (
        Follower("replay") as follower,
        session("replay", master, conf, spark_log) as spark,
        Bar("sent", None) as bar,
    ):
        follower.say("reading the range")
        done = run(spark, options, lambda sent, all: follower.say(f"{sent:,} of {all:,} sent"))
        seconds = bar.seconds
    if report is not None:
        write_report(report, done, seconds)
    if as_json:
        found = {
            "stream": stream,
            "target": to,
            "run": done.plan.run,
            "records": done.plan.count,
            "sent": done.sent,
            "sent_before": done.before,
            "partitions": {str(key): list(pair) for key, pair in done.plan.partitions.items()},
            "seconds": round(seconds, 3),
        }
        sys.stdout.write(json.dumps(found) + "\n")
        return
    for partition, (first, next) in done.plan.partitions.items():
        sys.stdout.write(f"{stream}::{partition}  offsets {first:,} to {next - 1:,}\n")
    sys.stdout.write(f"{done.sent:,} records sent to {to}")
    sys.stdout.write(f", {done.before:,} were sent before\n" if done.before else "\n")


def _bound(option: str, text: str | None) -> Bound:
    if text is None:
        return None
    if not text.strip().startswith("{"):
        from pyspark_ferrymq.pipelines.stream_input import milliseconds

        return datetime.fromtimestamp(milliseconds(text) / 1000, UTC)
    try:
        return {int(partition): int(offset) for partition, offset in json.loads(text).items()}
    except (ValueError, TypeError):
        raise AmqpOptionError(f"{option} {text}: {_SHAPE}") from None
