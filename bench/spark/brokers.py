"""The part `brokers`: one query over 1, 2 and 4 brokers that have an equal part of the records."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.sql import SparkSession

from bench.spark.reading import NARROW, amqp, batch, streaming
from bench.spark.turns import Contender, Rounds

COUNTS: Final = (1, 2, 4)
"""The numbers of brokers."""


class Spread(NamedTuple):
    """The records spread over brokers: the URLs, with commas, by number of brokers; the rows are
    those of all brokers together."""

    urls: dict[int, str]
    rows: int


def measure(session: SparkSession, rounds: Rounds, spread: Spread, folder: Path) -> None:
    """Measure batch and streaming. The times are those of all brokers together."""
    for case, run in (
        ("several brokers, batch", partial(batch, session, NARROW)),
        ("several brokers, streaming", partial(streaming, session, NARROW, folder)),
    ):
        contenders = [
            Contender(_named(count), partial(run, amqp(url)), spread.rows)
            for count, url in spread.urls.items()
        ]
        rounds.measure(case, contenders)


def _named(count: int) -> str:
    return f"{count} broker{'s' if count > 1 else ''}"
