"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from pyspark_ferrymq.cli.durations import duration

DEFAULT_URL: Final = "amqp://127.0.0.1:5672"
DEFAULT_MASTER: Final = "local[*]"

Url = Annotated[
    str,
    typer.Option(
        "--url",
        envvar="FERRYMQ_URL",
        metavar="URL",
        help="The broker: amqp://[USER@]HOST[:PORT], or amqps://, ws://, wss://. Several URLs of"
        " one broker have commas between them.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Master = Annotated[
    str,
    typer.Option(
        "--master",
        envvar="FERRYMQ_SPARK_MASTER",
        metavar="MASTER",
        help="The cluster: spark://HOST:PORT, yarn, k8s://…, or local[N]; sc://HOST:PORT for Spark"
        " Connect.",
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option(
        "--conf", metavar="KEY=VALUE", help="A Spark setting, as for spark-submit; repeatable."
    ),
]
SparkLog = Annotated[
    Path | None,
    typer.Option(
        "--spark-log",
        metavar="FILE",
        help="The file for Spark's log; - is standard error. Default: a temporary file.",
        show_default=False,
    ),
]
Report = Annotated[
    Path | None,
    typer.Option(
        "--report",
        metavar="FILE.html",
        help="Write an HTML page with plots, which also works offline.",
        show_default=False,
    ),
]
Once = Annotated[
    bool, typer.Option("--once", help="End when everything available now is processed.")
]
Every = Annotated[
    str,
    typer.Option(
        "--every", metavar="TIME", parser=duration, help="Time between batches, as 5s or 10m."
    ),
]
Streams = Annotated[
    list[str] | None, typer.Argument(metavar="STREAM…", help="The streams.", show_default=False)
]
Pattern = Annotated[
    str | None,
    typer.Option(
        "--pattern",
        metavar="REGEX",
        help="All streams whose names match, instead of STREAM.",
        show_default=False,
    ),
]
Start = Annotated[
    str,
    typer.Option(
        "--start",
        metavar="WHERE",
        help="earliest, latest, a time as 2026-05-01T12:00, or offsets in JSON."
        " A checkpoint takes precedence.",
    ),
]
Limit = Annotated[
    int | None,
    typer.Option(
        "--limit", min=1, metavar="N", help="The most records in a batch.", show_default=False
    ),
]
