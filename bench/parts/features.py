"""The cost of features: the same load through a plain queue and through other nodes.

The client is that of the part `broker`, 100 B of body, unsettled both ways. Each case has a turn in
every round. The broker's processor time per message is compared with that of the plain queue in the
same round, so that other load on the machine has little influence.

At last one consumer holds very many messages at once, without locks and with them, and accepts
them then. Putting the messages into the queue does not count.
"""

from __future__ import annotations

import statistics
from typing import Any, Final, NamedTuple

from librt.strings import BytesWriter

from bench.client import fill, hold
from bench.encoding import data_section
from bench.parts.broker import IN_FLIGHT, MESSAGES, OURS, PROBE, LoadFailed, run_load
from bench.process import Server
from bench.results import Comparison, Figure, Report
from bench.rows import spaced
from bench.tree import Trees
from ferrymq_types.messaging import (
    ApplicationProperties,
    Header,
    encode_application_properties,
    encode_header,
)

TIME: Final = "µs/message"
PLAIN: Final = "a plain queue"
SIZE: Final = 100
SUBSCRIPTIONS: Final = 10
# The bindings of the headers exchange.
BINDINGS: Final = 1_000
# How many messages one consumer holds at once, and in a run of less than a second per case.
HELD: Final = 1_000_000
HELD_QUICKLY: Final = 100_000
# What locks may cost at most: a ratio of processor times.
DEMAND_LOCKED: Final = 1.2

# The configuration of the broker under test; other names become queues.
CONFIGURATION: Final = """
# A link may hold `HELD` messages.
[limits]
unsettled = 1_000_000
unsettled-per-connection = 2_000_000

[[queue]]
name = "bounded"
max-length = 100_000

[[queue]]
name = "locked"
lock-duration = "1m"

[[topic]]
name = "topic"

[[stream]]
name = "stream"
max-bytes = "64MiB"

[[queue]]
name = "bound"

[[exchange]]
name = "exchange"
binding = [{ to = "bound" }]

[[queue]]
name = "chosen"

[[exchange]]
name = "headers"
routing = "headers"
""" + "".join(
    f"""
[[exchange.binding]]
to = "chosen"
arguments = {{ colour = "{number}" }}
""" for number in range(BINDINGS)
)


class Feature(NamedTuple):
    """A case: the addresses of the load, and its further options."""

    name: str
    address: str
    options: tuple[str, ...] = ()
    receivers: int = 1


def _header(header: Header) -> str:
    w = BytesWriter()
    encode_header(w, header)
    return f"--head={w.getvalue().hex()}"


def _property(value: str) -> str:
    w = BytesWriter()
    encode_application_properties(w, ApplicationProperties({"colour": value}))
    return f"--head={w.getvalue().hex()}"


FEATURES: Final = (
    Feature(PLAIN, "plain"),
    Feature(
        "messages of all ten priorities",
        "urgent",
        (*(_header(Header(priority=n)) for n in (4, 9, 0, 5, 3, 7, 6, 2, 1, 8)), "--unordered"),
    ),
    Feature("messages with a ttl", "passing", (_header(Header(ttl=600_000)),)),
    Feature("a queue with a max-length", "bounded"),
    Feature("a queue with a lock-duration", "locked"),
    Feature(
        "a receiver with a selector",
        "selected",
        (_property("red"), _property("green"), "--selector=colour IN ('red', 'green', 'blue')"),
    ),
    Feature("an exchange, and the queue bound to it", "exchange", ("--source=bound",)),
    Feature(
        f"a headers exchange with {spaced(BINDINGS)} bindings",
        "headers",
        ("--source=chosen", _property("7"), _property("8")),
    ),
    Feature("a topic with one subscription", "topic", ("--capability=topic",)),
    Feature(
        f"a topic with {SUBSCRIPTIONS} subscriptions, for each delivery",
        "topic",
        ("--capability=topic",),
        SUBSCRIPTIONS,
    ),
    Feature("into a stream and out of it", "stream"),
)


class FeatureBench:
    """The whole part: all cases with one broker, in rounds."""

    def __init__(self, trees: Trees, server: Server, *, rounds: int, seconds: float) -> None:
        self.trees = trees
        self.server = server
        self.rounds = rounds
        self.seconds = seconds
        self.rates: dict[Feature, list[float]] = {}
        self.times: dict[Feature, list[float]] = {}
        self.report = Report("features", options={"rounds": rounds, "seconds": seconds})

    def measure(self) -> Report:
        """Run everything and return the report, which includes failures."""
        counts: dict[Feature, int] = {}
        for feature in FEATURES:
            try:
                rate = self._load(feature, PROBE)["rate"]
                counts[feature] = max(PROBE, int(rate * self.seconds))
            except LoadFailed as error:
                self.report.failures.append(f"{feature.name}: {error}")
        for _ in range(self.rounds):
            for feature, count in list(counts.items()):
                try:
                    self._run(feature, count)
                except LoadFailed as error:
                    self.report.failures.append(f"{feature.name}: {error}")
                    del counts[feature]
        self._finish(counts)
        self._hold()
        return self.report

    def _hold(self) -> None:
        """Measure what it costs that one consumer holds very many messages."""
        count = HELD if self.seconds >= 1 else HELD_QUICKLY
        message = data_section(bytes(SIZE))
        case = f"{count:,} messages held at once".replace(",", " ")
        kinds = {"without locks": "held", "with locks": "locked"}
        times: dict[str, list[float]] = {kind: [] for kind in kinds}
        try:
            for _ in range(self.rounds):
                for kind, address in kinds.items():
                    fill(self.server.port, address, message, count)
                    before = self.server.cpu_seconds()
                    hold(self.server.port, address, count)
                    after = self.server.cpu_seconds()
                    if before is not None and after is not None:
                        times[kind].append(1e6 * (after - before) / count)
        except OSError as error:
            self.report.failures.append(f"{case}: {error}")
            return
        report = self.report
        for kind, figures in times.items():
            if figures:
                name = f"{OURS}, broker's processor time"
                report.figures.append(Figure(f"{case}, {kind}", name, TIME, figures))
        without, with_locks = times.values()
        if without and all(without):
            ratio = statistics.median(a / b for a, b in zip(with_locks, without, strict=True))
            report.comparisons.append(
                Comparison(
                    f"{case}, with locks",
                    f"{OURS}, broker's processor time",
                    f"{case}, without locks",
                    ratio,
                    at_most=DEMAND_LOCKED,
                )
            )

    def _run(self, feature: Feature, count: int) -> None:
        before = self.server.cpu_seconds()
        result = self._load(feature, count)
        after = self.server.cpu_seconds()
        self.rates.setdefault(feature, []).append(result["rate"] * feature.receivers)
        if before is not None and after is not None:
            messages = (count + result["warm_up"]) * feature.receivers
            self.times.setdefault(feature, []).append(1e6 * (after - before) / messages)

    def _load(self, feature: Feature, count: int) -> dict[str, Any]:
        arguments = [
            f"--url=amqp://127.0.0.1:{self.server.port}",
            f"--address={feature.address}",
            f"--count={count}",
            f"--warm-up={max(200, count // 20)}",
            f"--size={SIZE}",
            f"--in-flight={IN_FLIGHT}",
            f"--credit={IN_FLIGHT}",
            f"--receivers={feature.receivers}",
            *feature.options,
        ]
        return run_load(self.trees, arguments)

    def _finish(self, counts: dict[Feature, int]) -> None:
        report = self.report
        for feature in counts:
            times = self.times.get(feature, [])
            report.figures.append(Figure(feature.name, OURS, MESSAGES, self.rates[feature]))
            if times:
                name = f"{OURS}, broker's processor time"
                report.figures.append(Figure(feature.name, name, TIME, times))
        plain = self.times.get(FEATURES[0], [])
        for feature in list(counts)[1:]:
            times = self.times.get(feature, [])
            # A very short run takes less processor time than the system measures.
            if times and len(times) == len(plain) and all(plain):
                ratio = statistics.median(a / b for a, b in zip(times, plain, strict=True))
                demand = DEMAND_LOCKED if feature.address == "locked" else None
                name = f"{OURS}, broker's processor time"
                report.comparisons.append(
                    Comparison(feature.name, name, PLAIN, ratio, at_most=demand)
                )
