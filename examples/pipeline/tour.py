"""Run the shipped pipelines one after the other on generated traffic.

make run                          # in one terminal
python examples/pipeline/tour.py  # in another; takes a minute, and needs Java 17 or newer
"""

from __future__ import annotations

import asyncio
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import SparkSession

from pyspark_ferrymq.pipelines import archive, metrics, replay, triage
from pyspark_ferrymq.pipelines.metrics_report import write_report
from pyspark_ferrymq.pipelines.stream_input import Choice
from pyspark_ferrymq.traffic import Traffic
from pyspark_ferrymq.traffic.run import run_producer, run_workers


def main(url: str, directory: Path) -> None:
    """Generate traffic, measure it, sort its dead letters, archive it and send it again."""
    connection = {"url": url}
    prefix = f"tour-{datetime.now(UTC):%H%M%S}"
    traffic = Traffic(seed=7, count=5000, poison=0.03, prefix=prefix)
    ledger = asyncio.run(run_producer(connection, traffic))
    print(ledger.messages, "messages sent")
    shift = asyncio.run(run_workers(connection, f"{prefix}.parcels"))
    print(shift.done, "parcels done,", shift.rejected.total(), "rejected")

    # Data sources run in Python workers, which need our packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master("local[*]")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )

    streams = Choice(pattern=rf"{prefix}\..*")
    measuring = metrics.MetricsOptions(
        connection=connection, source=streams, window="1 second", once=True
    )
    measured = metrics.run(spark, measuring)
    report = directory / "metrics.html"
    write_report(report, measured, measuring, "the tour")
    late = sum(row["late"] for row in measured.rows)
    print(late, "messages were late;", report, "has the plots")

    sorting = triage.TriageOptions(connection=connection, queue=traffic.dead)
    for group in triage.run(spark, sorting).groups:
        print(group["count"], "dead letters:", group["condition"] or group["reason"])
    back = triage.TriageOptions(
        connection=connection, queue=traffic.dead, where="reason = 'delivery-limit'", retry=True
    )
    moved = triage.run(spark, back).moved
    print("sent back:", dict(moved.targets) if moved is not None else None)

    keeping = archive.ArchiveOptions(
        connection=connection,
        source=streams,
        path=str(directory / "archive"),
        checkpoint=str(directory / "archive-state"),
        once=True,
    )
    print(archive.run(spark, keeping).course.rows, "records archived")

    repeating = replay.ReplayOptions(
        connection=connection,
        stream=f"{prefix}.orders",
        target=f"{prefix}.orders-again",
        archive=keeping.path,
        checkpoint=str(directory / "replay-state"),
    )
    print(replay.run(spark, repeating).sent, "orders sent again")
    print(replay.run(spark, repeating).sent, "the second time")
    spark.stop()


if __name__ == "__main__":
    broker = sys.argv[1] if len(sys.argv) > 1 else "amqp://localhost"
    if len(sys.argv) > 2:
        main(broker, Path(sys.argv[2]))
    else:
        with TemporaryDirectory() as temporary:
            main(broker, Path(temporary))
