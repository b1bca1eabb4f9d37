"""Everything that a run needs: brokers, producers, the cluster, and the driver."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Self

from ferrymq import blocking
from tests.spark.cluster.standalone import Standalone
from tests.spark.kills.brokers import ReplicatedBroker, SingleBroker, broker_ports
from tests.spark.kills.copy_ledger import CopiedRecord
from tests.spark.kills.producers import KeyedProducer
from tests.spark.kills.query import DriverProcess
from tests.spark.kills.spark_processes import executors_of
from tests.spark.sinking import messages_at

# Processes of minutes are not worth the second of Java's compilers.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# Rows of a batch, and about how many records wait to be read.
_ROWS: Final = 300
_WAITING: Final = 5 * _ROWS
_PARTITIONS: Final = 2
# Seconds without a batch until the query hangs: generous, for busy machines.
PATIENCE: Final = 600.0
# How often the driver may end by itself until the run is over.
_ENDS: Final = 3


class QueryHangs(Exception):
    """The query makes no progress, or does not stay alive."""


class KillStage:
    """A context manager for all processes of a run. `ends` are the reasons for which the driver
    has ended by itself."""

    def __init__(self, folder: Path, seed: int, workers: int = 2, without: str = "") -> None:
        self.ends: list[str] = []
        ports = broker_ports(5)
        self.single = SingleBroker(folder / "single", ports[0])
        self.replicated = ReplicatedBroker(folder, ports[1:])
        self.cluster = Standalone(folder, workers)
        self._folder = folder
        self._seed = seed
        self._without = without
        self._stack = ExitStack()
        self.producers: list[KeyedProducer] = []

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for broker in (self.single, self.replicated):
                stack.callback(broker.close)
                broker.start()
            stack.enter_context(self.cluster)
            urls = ",".join([*self.single.urls, *self.replicated.urls])
            arguments = ["--master", self.cluster.url, "--url", urls, "--rows", str(_ROWS)]
            if self._without:
                arguments += ["--without", self._without]
            self.driver = DriverProcess(self._folder, arguments)
            stack.callback(self.driver.kill)
            self.driver.start()
            for name, broker in (("a", self.single), ("b", self.replicated)):
                producer = KeyedProducer(name, broker.urls, self._seed, self._may_send)
                stack.callback(producer.over.set)
                producer.start()
                self.producers.append(producer)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def executors(self) -> list[int]:
        """Return the executors that run now."""
        return [pid for worker in self.cluster.workers for pid in executors_of(worker.pid)]

    # -- progress ------------------------------------------------------------------------------

    def wait_for_batches(self, count: int) -> None:
        """Wait until so many more batches are committed. Raises `QueryHangs`."""
        wanted = self.driver.committed() + count
        self.wait_until(lambda: self.driver.committed() >= wanted)

    def wait_until(self, reached: Callable[[], bool], patience: float = PATIENCE) -> None:
        """Wait for something, as long as the query goes on. A driver that has ended is started
        again. Raises `QueryHangs`."""
        last, deadline = self.driver.committed(), time.monotonic() + patience
        while not reached():
            if self.driver.has_ended:
                self.ends.append(self.driver.log[-4000:])
                if len(self.ends) > _ENDS:
                    raise QueryHangs("the driver ends again and again")
                self.driver.start()
            for producer in self.producers:
                if producer.error is not None:
                    raise producer.error
            committed = self.driver.committed()
            if committed != last:
                last, deadline = committed, time.monotonic() + patience
            elif time.monotonic() > deadline:
                raise QueryHangs(f"no batch for {patience:.0f} s after batch {last}")
            threading.Event().wait(0.02)

    def stop_within_batch(self) -> None:
        """Stop the driver (SIGSTOP) when a batch has rows in the target, and is not committed."""
        while True:
            self.wait_until(lambda: self._count("copies") > self._read())
            self.driver.signal(signal.SIGSTOP)
            if self._count("copies") > self._read():
                return
            self.driver.signal(signal.SIGCONT)

    def drain(self) -> None:
        """End the producers, and wait until all records are read. Raises `QueryHangs`."""
        self.stop_producers()
        there = self._count("orders")
        self.wait_until(lambda: self._read() >= there, patience=60.0)

    def stop_producers(self) -> None:
        """End the producers, and wait for their ends."""
        for producer in self.producers:
            producer.over.set()
        for producer in self.producers:
            producer.join()

    def _may_send(self) -> bool:
        sent = sum(one.records.acknowledged for one in self.producers)
        return sent - self._read() < _WAITING

    def _read(self) -> int:
        """Return how many records are in batches that are committed."""
        return self.driver.records_until(self.driver.committed())

    # -- the streams ---------------------------------------------------------------------------

    def copies(self) -> Iterator[CopiedRecord]:
        """Yield all records of the target, in the order of each partition."""
        for name, urls in (("a", self.single.urls), ("b", self.replicated.urls)):
            for partition in range(_PARTITIONS):
                place = f"{name}/{partition}"
                for message in messages_at(",".join(urls), f"copies::{partition}", start="first"):
                    yield CopiedRecord(bytes(message.body), place)

    def _count(self, stream: str) -> int:
        """Return how many records a stream has at both brokers."""
        count = 0
        for broker in (self.single, self.replicated):
            with blocking.connect(broker.urls) as connection, connection.management() as management:
                answer: Any = management.request(
                    "RANGES", "org.ferrymq.stream", body={"names": [stream]}
                ).map()
            (found,) = answer["streams"]
            count += sum(int(one["next-offset"]) for one in found["partitions"])
        return count
