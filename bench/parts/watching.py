"""The cost of watching a broker: metrics and history, OpenTelemetry, and many busy nodes.

The load is that of the part `broker`, 100 B of body, unsettled both ways, through brokers that
differ only in how they are watched. They take turns in every round. A watched broker is asked for
all its metrics every second while it works; its spans go to a collector in this process that reads
and forgets them.

After that, two brokers with very many queues get a message for each queue in every period of the
history. One of them keeps history; what it uses more is what history costs.
"""

from __future__ import annotations

import contextlib
import statistics
import threading
import time
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final, NamedTuple

from librt.strings import BytesWriter

from bench.client import Peer
from bench.encoding import data_section
from bench.machine import processor_seconds
from bench.parts.broker import IN_FLIGHT, MESSAGES, OURS, PROBE, LoadFailed, run_load
from bench.process import Server
from bench.results import Comparison, Figure, Report
from bench.tree import Trees, command
from ferrymq_types.messaging import Properties, Target, encode_properties

TIME: Final = "µs/message"
SHARE: Final = "% of a core"
SIZE: Final = 100
UNWATCHED: Final = "nobody looks"
# What metrics and history may cost of the throughput, and history of a core.
DEMAND_RATE: Final = 0.97
DEMAND_SHARE: Final = 1.0
# Queues that are all in use, the seconds between two samples, and the samples that count.
NODES: Final = 10_000
PERIOD: Final = 5.0
PERIODS: Final = 6

_NO_HISTORY: Final = "[history]\nenabled = false\n"
_TRACED: Final = """
[opentelemetry]
traces = true
metrics = true
metrics-interval = 1
endpoint = "{collector}"
sampling-ratio = {ratio}
"""


class Watching(NamedTuple):
    """A way to watch a broker: its configuration, and whether its metrics are asked for."""

    name: str
    configuration: str
    asked: bool = False


CASES: Final = (
    Watching(UNWATCHED, _NO_HISTORY),
    Watching("history, metrics every second", "", True),
    Watching("OpenTelemetry, no message traced", _NO_HISTORY + _TRACED.replace("{ratio}", "0.0")),
    Watching(
        "OpenTelemetry, one message of 100 traced", _NO_HISTORY + _TRACED.replace("{ratio}", "0.01")
    ),
)


class _Forget(BaseHTTPRequestHandler):
    """A collector that reads spans and metrics and forgets them."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Read the request and answer that all is well."""
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@contextlib.contextmanager
def collector() -> Iterator[str]:
    """Run a collector and return its URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Forget)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextlib.contextmanager
def asking(url: str) -> Iterator[None]:
    """Ask for all metrics every second, in a thread."""
    stop = threading.Event()

    def ask() -> None:
        while not stop.wait(1.0):
            for path in ("/metrics", "/metrics/nodes"):
                with urllib.request.urlopen(url + path, timeout=10) as answer:
                    answer.read()

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def watched_broker(trees: Trees, folder: Path, case: Watching, url: str) -> Server:
    """Return a broker that is watched in this way; `url` is that of the collector."""
    config = folder / f"{len(list(folder.iterdir()))}.toml"
    config.write_text(case.configuration.replace("{collector}", url), "utf-8")
    arguments = ["serve", "--memory", "--log-level=warning", "--listen=amqp://127.0.0.1:0"]
    arguments += [f"--config={config}"]
    if case.asked:
        arguments.append("--http=http://127.0.0.1:0")
    return Server(OURS, command("ferrymq_broker", *arguments), trees.broker)


class WatchingBench:
    """The whole part: one broker for each way to watch, in rounds."""

    def __init__(
        self, trees: Trees, folder: Path, *, rounds: int, seconds: float, nodes: int = NODES,
        periods: int = PERIODS,
    ) -> None:  # fmt: skip
        self.trees = trees
        self.folder = folder
        self.rounds = rounds
        self.seconds = seconds
        self.nodes = nodes
        self.periods = periods
        self.report = Report("watching", options={"rounds": rounds, "seconds": seconds})

    def measure(self) -> Report:
        """Run everything and return the report, which includes failures."""
        with collector() as url, contextlib.ExitStack() as stack:
            servers: dict[Watching, Server] = {}
            for case in CASES:
                server = watched_broker(self.trees, self.folder, case, url)
                servers[case] = stack.enter_context(server)
            try:
                self._measure_load(servers)
            except (LoadFailed, OSError) as error:
                self.report.failures.append(str(error))
        try:
            self._measure_nodes()
        except OSError as error:
            self.report.failures.append(f"{self.nodes} nodes: {error}")
        return self.report

    def _measure_load(self, servers: dict[Watching, Server]) -> None:
        rates: dict[Watching, list[float]] = {case: [] for case in CASES}
        times: dict[Watching, list[float]] = {case: [] for case in CASES}
        rate, _ = self._load(CASES[0], servers[CASES[0]], PROBE)
        count = max(PROBE, int(rate * self.seconds))
        for round in range(self.rounds):
            shift = round % len(CASES)
            for case in (*CASES[shift:], *CASES[:shift]):
                rate, micros = self._load(case, servers[case], count)
                rates[case].append(rate)
                times[case].append(micros)
        for case in CASES:
            self.report.figures.append(Figure(case.name, OURS, MESSAGES, rates[case]))
            name = f"{OURS}, broker's processor time"
            self.report.figures.append(Figure(case.name, name, TIME, times[case]))
        plain = rates[CASES[0]]
        for case in CASES[1:]:
            ratio = statistics.median(a / b for a, b in zip(rates[case], plain, strict=True))
            demand = DEMAND_RATE if case.asked else None
            self.report.comparisons.append(
                Comparison(case.name, OURS, UNWATCHED, ratio, at_least=demand)
            )

    def _load(self, case: Watching, server: Server, count: int) -> tuple[float, float]:
        """Return messages per second, and the broker's processor time for one, in µs."""
        arguments = [
            f"--url=amqp://127.0.0.1:{server.port}",
            "--address=watched",
            f"--count={count}",
            f"--warm-up={max(200, count // 20)}",
            f"--size={SIZE}",
            f"--in-flight={IN_FLIGHT}",
            f"--credit={IN_FLIGHT}",
        ]
        before = processor_seconds(server.pid)
        with asking(server.monitoring) if case.asked else contextlib.nullcontext():
            result = run_load(self.trees, arguments)
        used = processor_seconds(server.pid) - before
        return float(result["rate"]), 1e6 * used / (count + result["warm_up"])

    # -- many busy nodes -----------------------------------------------------------------------

    def _measure_nodes(self) -> None:
        """Measure what history costs when every node is used in every period."""
        name = f"{self.nodes:,} busy nodes".replace(",", " ")
        cases = {"without history": _NO_HISTORY, "with history": ""}
        shares: dict[str, list[float]] = {}
        with contextlib.ExitStack() as stack:
            peers = []
            for kind, configuration in cases.items():
                watching = Watching(kind, configuration)
                server = watched_broker(self.trees, self.folder, watching, "")
                stack.enter_context(server)
                peer = Peer(server.port, "sender")
                stack.callback(peer.close)
                link = peer.session().attach_sender("everywhere", target=Target())
                peers.append((kind, server, peer, link))
                shares[kind] = []
            # The first messages make the queues, and do not count.
            for period in range(self.periods + 1):
                begun = time.monotonic()
                before = {kind: processor_seconds(server.pid) for kind, server, _, _ in peers}
                for _, _, peer, link in peers:
                    for number in range(self.nodes):
                        if link.credit == 0:
                            peer.supplied([link])
                        link.send(_message(f"busy.{number}"))
                    peer.answered(link)
                time.sleep(max(0.0, begun + PERIOD - time.monotonic()))
                elapsed = time.monotonic() - begun
                for kind, server, _, _ in peers:
                    used = processor_seconds(server.pid) - before[kind]
                    if period:
                        shares[kind].append(100 * used / elapsed)
        for kind, values in shares.items():
            self.report.figures.append(
                Figure(f"{name}, {kind}", f"{OURS}, broker's processor time", SHARE, values)
            )
        without, with_history = shares.values()
        more = [a - b for a, b in zip(with_history, without, strict=True)]
        self.report.figures.append(
            Figure(f"{name}, history alone", OURS, SHARE, more, demand=DEMAND_SHARE)
        )


def _message(address: str) -> bytes:
    """Return a message for a node."""
    w = BytesWriter()
    encode_properties(w, Properties(to=address))
    return w.getvalue() + data_section(bytes(SIZE))
