"""The lag of queries: the number of records that wait, from Spark's progress reports.

    spark.streams.addListener(LagListener(file="lag.json"))

The broker is not asked: the source reports the latest offsets to Spark when it plans a batch.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.streaming.listener import StreamingQueryListener

from pyspark_ferrymq.offsets import Offset, OffsetError, broker_of, name_of

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryProgress,
    )

LOGGER: Final = logging.getLogger("pyspark_ferrymq.lag")


@dataclass(frozen=True, slots=True)
class Lag:
    """The records, by stream and partition, that a query had not read when it planned a batch.

    `query` is its id, `name` its name, `timestamp` the beginning of the batch. With several
    brokers, the partitions of a number count together, and `brokers` has the lag of each broker by
    its id.
    """

    query: str
    name: str | None
    batch: int
    timestamp: str
    streams: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    brokers: Mapping[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """The lag of all streams together."""
        return sum(sum(partitions.values()) for partitions in self.streams.values())

    def to_json(self) -> dict[str, Any]:
        """Return the lag in the form of a `LagListener`'s file."""
        brokers = {"brokers": dict(sorted(self.brokers.items()))} if self.brokers else {}
        return {
            "name": self.name,
            "batch": self.batch,
            "timestamp": self.timestamp,
            "total": self.total,
            "streams": {
                name: {str(number): lag for number, lag in sorted(partitions.items())}
                for name, partitions in sorted(self.streams.items())
            },
            **brokers,
        }

    def __str__(self) -> str:
        streams = ", ".join(
            f"{name} {sum(partitions.values())}"
            for name, partitions in sorted(self.streams.items())
        )
        who = self.name or self.query
        return f"query {who}, batch {self.batch}: {self.total} records behind ({streams})"


def lag_of(progress: StreamingQueryProgress) -> Lag | None:
    """Return the lag in a progress report; None if no source in it is of this package.

    Partitions that are read to the end have the lag 0.
    """
    # By the keys of streams.
    behinds: dict[tuple[str, int], int] = {}
    ours = False
    for source in progress.sources:
        end, latest = _offset(source.endOffset), _offset(source.latestOffset)
        if end is None or latest is None:
            continue
        ours = True
        for name, number, behind in latest:
            position = end.streams.get(name)
            known = position is not None and (
                position.incarnation == latest.streams[name].incarnation
            )
            at = end.of(name, number) if known else 0
            # Two sources may read the same partition: the slower one counts.
            behinds[name, number] = max(behinds.get((name, number), 0), behind - (at or 0), 0)
    if not ours:
        return None
    streams: dict[str, dict[int, int]] = {}
    brokers: dict[str, int] = {}
    for (key, number), count in behinds.items():
        partitions = streams.setdefault(name_of(key), {})
        partitions[number] = partitions.get(number, 0) + count
        if broker := broker_of(key):
            brokers[broker] = brokers.get(broker, 0) + count
    return Lag(
        str(progress.id), progress.name, progress.batchId, progress.timestamp, streams, brokers
    )


def _offset(text: str | None) -> Offset | None:
    """Parse an offset of this package; return None for another source's, or for no offset."""
    try:
        return Offset.from_json(json.loads(text or "null"))
    except (OffsetError, ValueError):
        return None


class LagListener(StreamingQueryListener):
    """A listener that reports the lag of every query with a source of this package.

    At each progress report, `callback` gets a `Lag`, and `log` writes it to the logger
    ``pyspark_ferrymq.lag``. `file` is a JSON file with the last lag of each query, which is
    replaced as a whole. Exceptions of the callback are logged: they do not disturb the query.
    """

    def __init__(
        self,
        callback: Callable[[Lag], None] | None = None,
        *,
        log: bool = False,
        file: str | os.PathLike[str] | None = None,
    ) -> None:
        self._callback = callback
        self._log = log
        # Spark calls the listener later, when the program may be in another directory.
        self._file = None if file is None else Path(file).absolute()
        self._lock = threading.Lock()
        self._last: dict[str, dict[str, Any]] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Do nothing: there is no lag yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Report the lag after a batch, or after a time without one."""
        lag = lag_of(event.progress)
        if lag is None:
            return
        if self._log:
            LOGGER.info("%s", lag)
        if self._callback is not None:
            try:
                self._callback(lag)
            except Exception:
                LOGGER.exception("the callback for the lag of queries failed")
        self._write(lag.query, {**lag.to_json(), "running": True})

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Keep the last lag in the file, marked as that of a query that has ended."""
        last = self._last.get(str(event.id))
        if last is not None:
            self._write(str(event.id), {**last, "running": False})

    def _write(self, query: str, entry: dict[str, Any]) -> None:
        with self._lock:
            self._last[query] = entry
            if self._file is None:
                return
            text = json.dumps({"queries": self._last}, indent=1)
            beside = self._file.with_name(f".{self._file.name}.{os.getpid()}")
            try:
                beside.write_text(text + "\n", "utf-8")
                beside.replace(self._file)
            except OSError as error:
                LOGGER.warning("the lag of queries cannot be written: %s", error)
