"""A process that measures Spark parts and writes reports as JSON; `bench.spark.cli` starts it.

A separate process is needed because its first imports decide which variant of ferrymq runs in it
and in Spark's Python workers.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession
from rich.console import Console

from bench.machine import variant, versions
from bench.process import Server, broker, durable_broker
from bench.results import Report
from bench.rows import spaced
from bench.spark import archive, brokers, latency, memory, reading, records, scale, sink
from bench.spark.cpu import Times, times_of
from bench.spark.parts import PARTS
from bench.spark.session import CORES, java_pid, start
from bench.spark.turns import OURS, Rounds, first_line
from bench.tree import Trees

STORED: Final = f"{OURS}, stored"


class Worker:
    """A session, and the brokers of each part. `stack` ends remaining processes."""

    def __init__(
        self, trees: Trees, folder: Path, stack: contextlib.ExitStack, arguments: argparse.Namespace
    ) -> None:
        self._trees = trees
        self._folder = folder
        self._stack = stack
        self._arguments = arguments
        self._console = Console(stderr=True)
        self._config = folder / "bench.toml"
        self._config.write_text(records.CONFIGURATION + latency.CONFIGURATION, "utf-8")
        self._session: SparkSession = start(folder)
        stack.callback(self._session.stop)
        self._java = java_pid(self._session)

    def run(self, part: str) -> Report:
        """Measure one part; its report includes failures."""
        arguments = self._arguments
        options = {"rounds": arguments.rounds, "rows": spaced(arguments.rows), "cores": CORES}
        report = Report(part, options=options)
        with contextlib.ExitStack() as stack, self._console.status(f"{part} …") as status:

            def say(what: str) -> None:
                if self._console.is_terminal:
                    status.update(f"{part}: {what}")
                else:
                    self._console.print(f"{part}: {what}", style="dim", highlight=False)

            measured: Callable[[Report, contextlib.ExitStack, Callable[[str], None]], None]
            measured = {
                "reading": self._reading,
                "archive": self._archive,
                "sink": self._sink,
                "query-latency": self._latency,
                "scale": self._scale,
                "query-memory": self._memory,
                "brokers": self._several_brokers,
            }[part]
            try:
                measured(report, stack, say)
            except Exception as error:
                # Errors of Spark have no common class besides this one.
                report.failures.append(f"{part}: {first_line(error)}")
        report.build = {
            "broker": self._trees.broker_variant(),
            "workers": variant("ferrymq_codec.reader"),
            **versions(),
        }
        return report

    def _brokers(self, stack: contextlib.ExitStack) -> dict[str, Server]:
        data = stack.enter_context(tempfile.TemporaryDirectory(dir=self._folder))
        return {
            OURS: stack.enter_context(broker(self._trees, self._config)),
            STORED: stack.enter_context(durable_broker(self._trees, Path(data), {}, self._config)),
        }

    def _filled(
        self, stack: contextlib.ExitStack, say: Callable[[str], None]
    ) -> tuple[reading.Streams, dict[str, Server]]:
        servers = self._brokers(stack)
        for name, server in servers.items():
            say(f"{spaced(self._arguments.rows)} records into the stream of {name}")
            records.publish(server.port, "records", self._arguments.rows)
        urls = {name: f"amqp://127.0.0.1:{server.port}" for name, server in servers.items()}
        return reading.Streams(urls, self._arguments.rows), servers

    def _rounds(
        self, report: Report, servers: dict[str, Server], say: Callable[[str], None]
    ) -> Rounds:
        def times() -> Times:
            every = [times_of(server.pid, self._java) for server in servers.values()]
            return every[0]._replace(broker=sum(each.broker for each in every))

        return Rounds(report, self._arguments.rounds, times, say)

    def _reading(
        self, report: Report, stack: contextlib.ExitStack, say: Callable[[str], None]
    ) -> None:
        streams, servers = self._filled(stack, say)
        rounds = self._rounds(report, servers, say)
        reading.measure(self._session, rounds, streams, self._folder)

    def _archive(
        self, report: Report, stack: contextlib.ExitStack, say: Callable[[str], None]
    ) -> None:
        streams, servers = self._filled(stack, say)
        archive.measure(self._session, self._rounds(report, servers, say), streams, self._folder)

    def _sink(
        self, report: Report, stack: contextlib.ExitStack, say: Callable[[str], None]
    ) -> None:
        servers = self._brokers(stack)
        urls = {name: f"amqp://127.0.0.1:{server.port}" for name, server in servers.items()}
        sinks = sink.Sinks(self._session, urls, self._arguments.rows, self._folder)
        sinks.measure(self._rounds(report, servers, say))

    def _latency(
        self, report: Report, stack: contextlib.ExitStack, say: Callable[[str], None]
    ) -> None:
        servers = self._brokers(stack)
        urls = {name: f"amqp://127.0.0.1:{server.port}" for name, server in servers.items()}
        rounds = self._arguments.rounds
        seconds = latency.WARM_UP, latency.MEASURED
        latency.measure(self._session, report, urls, rounds, seconds, self._folder, say)

    def _scale(
        self, report: Report, stack: contextlib.ExitStack, say: Callable[[str], None]
    ) -> None:
        for size in self._arguments.sizes:
            why = scale.room(self._folder, size)
            if why:
                report.failures.append(f"scale: {why}")
                return
        servers: dict[str, Server] = {}
        sizes: dict[int, str] = {}
        for size in self._arguments.sizes:
            data = stack.enter_context(tempfile.TemporaryDirectory(dir=self._folder))
            server = durable_broker(self._trees, Path(data), {}, self._config)
            servers[str(size)] = stack.enter_context(server)
            sizes[size] = f"amqp://127.0.0.1:{server.port}"
            say(f"{spaced(size)} records into a stream")
            records.publish(server.port, "records", size)
        scale.measure(self._session, self._rounds(report, servers, say), sizes)

    def _several_brokers(
        self, report: Report, stack: contextlib.ExitStack, say: Callable[[str], None]
    ) -> None:
        servers: dict[str, Server] = {}
        urls: dict[int, str] = {}
        rows = self._arguments.rows // max(brokers.COUNTS) * max(brokers.COUNTS)
        for count in brokers.COUNTS:
            places = []
            for number in range(count):
                data = stack.enter_context(tempfile.TemporaryDirectory(dir=self._folder))
                server = durable_broker(self._trees, Path(data), {}, self._config)
                servers[f"{count}/{number}"] = stack.enter_context(server)
                place = servers[f"{count}/{number}"]
                say(f"{spaced(rows // count)} records into broker {number + 1} of {count}")
                records.publish(place.port, "records", rows // count)
                places.append(f"amqp://127.0.0.1:{place.port}")
            urls[count] = ",".join(places)
        spread = brokers.Spread(urls, rows)
        brokers.measure(self._session, self._rounds(report, servers, say), spread, self._folder)

    def _memory(
        self, report: Report, stack: contextlib.ExitStack, say: Callable[[str], None]
    ) -> None:
        rows = self._arguments.sizes[-1]
        why = scale.room(self._folder, rows)
        if why:
            report.failures.append(f"query-memory: {why}")
            return
        data = stack.enter_context(tempfile.TemporaryDirectory(dir=self._folder))
        server = stack.enter_context(durable_broker(self._trees, Path(data), {}, self._config))
        url = f"amqp://127.0.0.1:{server.port}"
        say(f"{spaced(rows)} records into a stream")
        records.publish(server.port, "records", rows)
        pids = (server.pid, self._java)

        def times() -> Times:
            return times_of(*pids)

        memory.measure(self._session, report, url, rows, self._folder, pids, times, say)


def main(argv: list[str] | None = None) -> int:
    """Run `python -m bench.spark.worker` and return the exit status."""
    made = argparse.ArgumentParser(prog="python -m bench.spark.worker", description=__doc__)
    made.add_argument("parts", nargs="+", choices=PARTS)
    made.add_argument("--rounds", type=int, required=True)
    made.add_argument("--rows", type=int, required=True)
    made.add_argument("--sizes", type=int, nargs="+", required=True)
    made.add_argument("--folder", type=Path, required=True)
    made.add_argument("--out", type=Path, required=True)
    arguments = made.parse_args(argv)
    trees = Trees.at(os.environ["PYTHONPATH"].split(os.pathsep))
    reports: list[Report] = []
    with contextlib.ExitStack() as stack:
        worker = Worker(trees, arguments.folder, stack, arguments)
        for part in arguments.parts:
            reports.append(worker.run(part))
            # What was measured is not lost if a later part, or the end of Spark, fails.
            text = json.dumps([report.to_json() for report in reports])
            arguments.out.write_text(text, "utf-8")
    return 0


def _end(number: int, _frame: object) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _end)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    sys.exit(main())
