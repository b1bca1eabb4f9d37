"""The part `scale`: whether a row costs the same in a stream of 10⁵, 10⁶ and 10⁷ records.

Each size has its own stream in the broker's store, which is read whole into the `noop` sink.
"""

from __future__ import annotations

import shutil
import statistics
from functools import partial
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from bench.results import Comparison, Figure
from bench.rows import spaced
from bench.spark.reading import NARROW, amqp, batch
from bench.spark.turns import COST, OURS, Contender, Rounds

# The highest allowed ratio of a row's cost in the largest stream to that in the smallest.
AT_MOST: Final = 1.25
# An upper estimate of a record's bytes on disk.
ON_DISK: Final = 1_600


def room(folder: Path, count: int) -> str:
    """Return why `count` records cannot be stored in `folder`; empty if they can."""
    free = shutil.disk_usage(folder).free
    needed = 2 * count * ON_DISK
    if free >= needed:
        return ""
    return (
        f"{spaced(count)} records need {needed / 2**30:.0f} GiB free in {folder}, "
        f"and there are {free / 2**30:.0f}"
    )


def measure(session: SparkSession, rounds: Rounds, sizes: dict[int, str]) -> None:
    """Measure all sizes; `sizes` has the URL of the broker with a stream of each size."""
    costs: dict[int, list[float]] = {}
    for rows, url in sizes.items():
        case = f"{spaced(rows)} records"
        seconds = rounds.measure(
            case, [Contender(OURS, partial(batch, session, NARROW, amqp(url)), rows)]
        )
        if OURS in seconds:
            costs[rows] = [1e6 * took / rows for took in seconds[OURS]]
            rounds.report.figures.append(Figure(case, f"{OURS}, time", COST, costs[rows]))
    if len(costs) > 1:
        least, most = min(costs), max(costs)
        ratio = statistics.median(costs[most]) / statistics.median(costs[least])
        rounds.report.comparisons.append(
            Comparison(
                "time for a row",
                f"of {spaced(most)}",
                f"of {spaced(least)}",
                ratio,
                at_most=AT_MOST,
            )
        )
