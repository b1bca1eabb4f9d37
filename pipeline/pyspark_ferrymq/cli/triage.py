"""``ferrymq pipeline triage``: analyse dead letters, and send them back."""

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
    Json,
    Master,
    Report,
    SparkLog,
    Url,
)
from pyspark_ferrymq.cli.progress import Follower
from pyspark_ferrymq.cli.security_options import access_options
from pyspark_ferrymq.cli.session import session

if TYPE_CHECKING:
    from pyspark_ferrymq.pipelines.triage import Triaged, TriageOptions


@told
def triage(
    queue: Annotated[str, typer.Argument(help="The dead-letter queue.", show_default=False)],
    url: Url = DEFAULT_URL,
    where: Annotated[
        str | None,
        typer.Option(
            metavar="EXPRESSION",
            help="Select messages, in SQL: \"reason = 'rejected' AND source LIKE 'shop.%'\".",
            show_default=False,
        ),
    ] = None,
    retry: Annotated[
        bool, typer.Option("--retry", help="Send messages back to their original queues.")
    ] = False,
    move_to: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Send messages to this address.", show_default=False),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Report what would be moved, and move nothing.")
    ] = False,
    samples: Annotated[int, typer.Option(min=0, max=100, help="Samples of each group.")] = 3,
    report: Report = None,
    master: Master = DEFAULT_MASTER,
    conf: Conf = None,
    spark_log: SparkLog = None,
    as_json: Json = False,
) -> None:
    """Group dead letters by reason, origin and time, with samples.

    With --retry or --move-to, the messages selected by --where are moved, each exactly once: one
    transaction takes a message from one queue and adds it to the other.
    """
    from pyspark_ferrymq.pipelines.triage import TriageOptions, run
    from pyspark_ferrymq.pipelines.triage_report import write_report

    options = TriageOptions(
        connection=access_options(url),
        queue=queue,
        where=where,
        samples=samples,
        retry=retry,
        move_to=move_to,
        dry_run=dry_run,
    )
    options.check()
    with Follower("triage") as follower, session("triage", master, conf, spark_log) as spark:
        found = run(spark, options, follower.say)
    if as_json:
        sys.stdout.write(json.dumps(_plain(found, options), default=str) + "\n")
    else:
        _show(found, options)
    if report is not None:
        write_report(report, found, options)


def _plain(found: Triaged, options: TriageOptions) -> dict[str, object]:
    moved = found.moved
    return {
        "queue": options.queue,
        "messages": found.count,
        "groups": [row.asDict(recursive=True) for row in found.groups],
        "moved": None if moved is None else dict(moved.targets),
        "missing": None if moved is None else moved.missing,
    }


def _show(found: Triaged, options: TriageOptions) -> None:
    from rich.console import Console
    from rich.text import Text

    from pyspark_ferrymq.report.page import shown

    console = Console(highlight=False)
    for row in found.groups:
        head = Text(f"{row['count']:>7,}  ", style="bold")
        head.append(" ".join(shown(row[name]) for name in ("reason", "condition") if row[name]))
        head.append(f"  from {shown(row['source'])}, subject {shown(row['subject'])}", style="")
        console.print(head)
        console.print(Text(f"         {shown(row['first'])} to {shown(row['last'])}", style="dim"))
        for sample in row["samples"]:
            said = sample["description"] or sample["text"] or ""
            line = Text(f"         {shown(sample['messageId'])}: {said}", style="dim")
            console.print(line, no_wrap=True, overflow="ellipsis")
    console.print(f"{found.count:,} messages in {options.queue}")
    if found.moved is not None:
        for target, count in sorted(found.moved.targets.items()):
            console.print(f"{count:,} moved to {target}")
        if found.moved.missing:
            console.print(f"{found.moved.missing:,} were not there any more, or are of a format"
                          " that is not AMQP's")  # fmt: skip
    elif options.dry_run:
        target = options.move_to or "where they come from"
        console.print(f"{found.count:,} would be moved to {target}")
