"""``ferrymq pipeline metrics``: metrics by window of time and address."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from pyspark_ferrymq.cli.durations import duration, span
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
    from pyspark.sql import Row


@told
def metrics(
    streams: Streams = None,
    url: Url = DEFAULT_URL,
    pattern: Pattern = None,
    start: Start = "earliest",
    window: Annotated[
        str, typer.Option(metavar="TIME", parser=span, help="Length of a window, as 10s or 5m.")
    ] = "1m",
    watermark: Annotated[
        str,
        typer.Option(
            metavar="TIME", parser=duration, help="How long a window waits for late messages."
        ),
    ] = "1m",
    late: Annotated[
        str,
        typer.Option(metavar="TIME", parser=duration, help="Longer transit times are late."),
    ] = "1m",
    by: Annotated[
        str,
        typer.Option(metavar="enqueued|created", help="The time that chooses the window."),
    ] = "enqueued",
    to: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Send results there, as JSON.", show_default=False),
    ] = None,
    parquet: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Write results there, as Parquet.", show_default=False),
    ] = None,
    once: Once = False,
    every: Every = "5s",
    limit: Limit = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            metavar="DIR", help="Directory of Spark's checkpoint, to continue.", show_default=False
        ),
    ] = None,
    report: Report = None,
    master: Master = DEFAULT_MASTER,
    conf: Conf = None,
    spark_log: SparkLog = None,
    as_json: Json = False,
) -> None:
    """Count messages and bytes of streams in windows of time, and measure their transit times.

    Results are printed, and can be sent to an address and written to Parquet and to a report.
    """
    from pyspark_ferrymq.pipelines.metrics import MetricsOptions, run
    from pyspark_ferrymq.pipelines.metrics_report import write_report
    from pyspark_ferrymq.pipelines.stream_input import Choice

    options = MetricsOptions(
        connection=access_options(url),
        source=Choice(streams=tuple(streams or ()), pattern=pattern, start=start, limit=limit),
        window=window,
        watermark=watermark,
        late=late,
        by=_by(by),
        to=to,
        parquet=parquet,
        checkpoint=checkpoint,
        once=once,
        every=every,
    )
    options.check()
    printer = _Printer(as_json)
    with (
        Follower("metrics") as follower,
        session("metrics", master, conf, spark_log) as spark,
    ):
        follower.say("reading")
        measured = run(spark, options, follower, printer)
    what = ", ".join(streams or ()) or f"streams like {pattern}"
    printer.end(sum(row["messages"] for row in measured.rows), measured.course.dropped)
    if report is not None:
        write_report(report, measured, options, what)
    if measured.stopped:
        raise KeyboardInterrupt


def _by(text: str) -> Literal["enqueued", "created"]:
    if text == "enqueued":
        return "enqueued"
    if text == "created":
        return "created"
    raise typer.BadParameter(f"{text!r} is neither enqueued nor created", param_hint="--by")


class _Printer:
    """A printer of completed windows: one line each, aligned or in JSON."""

    _HEAD = ("from", "address", "messages", "KiB", "p50 ms", "p95 ms", "p99 ms", "late", "twice")
    _FORM = "{:<19}  {:<24} {:>9} {:>9} {:>9} {:>10} {:>11} {:>6} {:>6}\n"

    def __init__(self, as_json: bool) -> None:
        self._json = as_json
        self._begun = False

    def __call__(self, rows: list[Row]) -> None:
        for row in rows:
            if self._json:
                found = {
                    name: value.isoformat() if name in ("start", "end") else value
                    for name, value in row.asDict().items()
                }
                sys.stdout.write(json.dumps(found) + "\n")
            else:
                self._line(row)
        sys.stdout.flush()

    def _line(self, row: Row) -> None:
        if not self._begun:
            self._begun = True
            sys.stdout.write(self._FORM.format(*self._HEAD))
        took = ["–" if row[name] is None else f"{row[name]:,.0f}" for name in ("p50", "p95", "p99")]
        sys.stdout.write(
            self._FORM.format(
                f"{row['start']:%Y-%m-%d %H:%M:%S}", row["address"], f"{row['messages']:,}",
                f"{row['bytes'] // 1024:,}", *took, row["late"], row["duplicates"],
            )
        )  # fmt: skip

    def end(self, messages: int, dropped: bool) -> None:
        """Print the total, and a warning if messages were dropped."""
        if not self._json:
            sys.stdout.write(f"{messages:,} messages in windows that are over\n")
        if dropped:
            sys.stderr.write(
                "ferrymq: some messages were later than --watermark allows: they are not counted\n"
            )
