"""``ferrymq pipeline archive``: write streams as Parquet files."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from pyspark_ferrymq.cli.error_messages import told
from pyspark_ferrymq.cli.options import (
    DEFAULT_MASTER,
    DEFAULT_URL,
    Conf,
    Every,
    Json,
    Limit,
    Master,
    Once,
    Pattern,
    Report,
    SparkLog,
    Start,
    Streams,
    Url,
)
from pyspark_ferrymq.cli.progress import Follower
from pyspark_ferrymq.cli.security_options import access_options
from pyspark_ferrymq.cli.session import session

if TYPE_CHECKING:
    from pyspark_ferrymq.pipelines.archive import Archived


@told
def archive(
    path: Annotated[
        str,
        typer.Option(
            metavar="DIR", help="The destination: a directory or a URI.", show_default=False
        ),
    ],
    checkpoint: Annotated[
        str,
        typer.Option(
            metavar="DIR", help="Directory of Spark's checkpoint, to continue.", show_default=False
        ),
    ],
    streams: Streams = None,
    url: Url = DEFAULT_URL,
    pattern: Pattern = None,
    start: Start = "earliest",
    hold: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Hold at the broker that keeps unarchived records; '' for none."
        ),
    ] = "archive",
    raw: Annotated[
        bool, typer.Option(help="Keep the original bytes of messages: `replay` needs them.")
    ] = True,
    once: Once = False,
    every: Every = "10s",
    limit: Limit = None,
    report: Report = None,
    master: Master = DEFAULT_MASTER,
    conf: Conf = None,
    spark_log: SparkLog = None,
    as_json: Json = False,
) -> None:
    """Archive streams as Parquet, each record once, until Ctrl-C or, with --once, to their end.

    The broker keeps records that are not archived, whatever the limits of the streams are.
    """
    from pyspark_ferrymq.pipelines.archive import ArchiveOptions, run
    from pyspark_ferrymq.pipelines.archive_report import write_report
    from pyspark_ferrymq.pipelines.stream_input import Choice

    options = ArchiveOptions(
        connection=access_options(url),
        source=Choice(streams=tuple(streams or ()), pattern=pattern, start=start, limit=limit),
        path=path,
        checkpoint=checkpoint,
        hold=hold or None,
        raw=raw,
        once=once,
        every=every,
    )
    options.check()
    with Follower("archive") as follower, session("archive", master, conf, spark_log) as spark:
        follower.say("reading")
        done = run(spark, options, follower)
    if as_json:
        sys.stdout.write(json.dumps(_plain(done, path)) + "\n")
    else:
        _show(done, path)
    if report is not None:
        write_report(report, done, options)
    if done.stopped:
        raise KeyboardInterrupt


def _plain(done: Archived, path: str) -> dict[str, object]:
    return {
        "path": path,
        "records": done.course.rows,
        "seconds": round(done.course.seconds, 3),
        "partitions": [
            {
                "stream": one.stream,
                "partition": one.partition,
                "first": one.first,
                "next": one.next,
                "files": one.files,
                "missing": one.missing,
            }
            for one in done.partitions
        ],
    }


def _show(done: Archived, path: str) -> None:
    form = "{:<28} {:>9} {:>12} {:>12} {:>7} {:>9}\n"
    sys.stdout.write(form.format("stream", "partition", "first", "next", "files", "missing"))
    for one in done.partitions:
        sys.stdout.write(
            form.format(
                one.stream, one.partition, f"{one.first:,}", f"{one.next:,}", one.files,
                f"{one.missing:,}",
            )
        )  # fmt: skip
    sys.stdout.write(f"{done.course.rows:,} records archived to {path}")
    if done.course.seconds:
        sys.stdout.write(f", {done.course.rows / done.course.seconds:,.0f}/s")
    sys.stdout.write("\n")
