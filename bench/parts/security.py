"""The cost of security: load inside TLS and through rules, and several ways of connecting.

The load is that of the part `broker`, 100 B of body, unsettled both ways: through a broker open to
everybody, through the same inside TLS, and through one with rules. Connections are opened and
closed one after another. Each case has a turn in every round. The broker's processor time is
compared with that of the plain case in the same round.
"""

from __future__ import annotations

import json
import statistics
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

from bench.logins import PASSWORD, USER
from bench.parts.broker import IN_FLIGHT, MESSAGES, OURS, PROBE, LoadFailed, run_load
from bench.process import Server
from bench.results import Comparison, Figure, Report
from bench.tree import Trees, command, environment

CONNECTIONS: Final = "connections/s"
TIME: Final = "µs/message"
LOGIN_TIME: Final = "µs/connection"
PROCESSOR: Final = f"{OURS}, broker's processor time"
SIZE: Final = 100
# The schemes of the brokers' listeners in this part.
SCHEMES: Final = ("amqp", "amqps")
# Connections of the trial run, which sets the count for a second; messages not measured.
FIRST: Final = 5
WARM_UP: Final = 200

_TLS: Final = """
[tls]
certificate = "server.pem"
key = "server-key.pem"
"""
# A broker that authenticates no client on this machine.
OPEN: Final = _TLS
# A broker that authenticates and authorises every client.
GUARDED: Final = f"""{_TLS}
[security]
anonymous = true

[security.users]
{USER} = "{PASSWORD}"

[[rule]]
who = "user:somebody-else"
may = "*"
where = "*"

[[rule]]
who = "*"
may = ["send", "receive", "create"]
where = ["bench.*", "bench"]
"""


class Case(NamedTuple):
    """A way to connect to a broker."""

    name: str
    guarded: bool
    scheme: str
    mechanism: str = "ANONYMOUS"


RELAYS: Final = (
    Case("relay, in the clear", False, "amqp"),
    Case("relay, inside TLS", False, "amqps"),
    Case("relay, guarded by rules", True, "amqp"),
)
LOGINS: Final = (
    Case("connecting, ANONYMOUS", True, "amqp"),
    Case("connecting, PLAIN", True, "amqp", "PLAIN"),
    Case("connecting, SCRAM-SHA-256", True, "amqp", "SCRAM-SHA-256"),
    Case("connecting, TLS and ANONYMOUS", True, "amqps"),
)


def make_certificates(trees: Trees, folder: Path) -> None:
    """Make server and CA certificates of `amqps` listeners, and both configurations."""
    subprocess.run(
        command("ferrymq_broker", "cert", "--out", str(folder), "--host", "127.0.0.1"),
        env=environment(trees.broker),
        stdout=subprocess.DEVNULL,
        check=True,
    )
    Path(folder, "open.toml").write_text(OPEN, "utf-8")
    Path(folder, "guarded.toml").write_text(GUARDED, "utf-8")


class SecurityBench:
    """The whole part: all cases with two brokers, in rounds. The brokers' certificates are in
    `folder`."""

    def __init__(
        self, trees: Trees, servers: tuple[Server, Server], folder: Path, *,
        rounds: int, seconds: float,
    ) -> None:  # fmt: skip
        self.trees = trees
        self.open, self.guarded = servers
        self.ca = folder / "ca.pem"
        self.rounds = rounds
        self.seconds = seconds
        self.rates: dict[Case, list[float]] = {}
        self.times: dict[Case, list[float]] = {}
        self.report = Report("security", options={"rounds": rounds, "seconds": seconds})

    def measure(self) -> Report:
        """Run everything and return the report, which includes failures."""
        counts: dict[Case, int] = {}
        for case in (*RELAYS, *LOGINS):
            least = PROBE if case in RELAYS else FIRST
            try:
                counts[case] = max(least, int(self._once(case, least) * self.seconds))
            except LoadFailed as error:
                self.report.failures.append(f"{case.name}: {error}")
        for _ in range(self.rounds):
            for case, count in list(counts.items()):
                try:
                    self._run(case, count)
                except LoadFailed as error:
                    self.report.failures.append(f"{case.name}: {error}")
                    del counts[case]
        self._finish(counts)
        return self.report

    def _run(self, case: Case, count: int) -> None:
        server = self._server(case)
        before = server.cpu_seconds()
        rate = self._once(case, count)
        after = server.cpu_seconds()
        self.rates.setdefault(case, []).append(rate)
        if before is not None and after is not None:
            done = count + WARM_UP if case in RELAYS else count
            self.times.setdefault(case, []).append(1e6 * (after - before) / done)

    def _server(self, case: Case) -> Server:
        return self.guarded if case.guarded else self.open

    def _once(self, case: Case, count: int) -> float:
        """Return the operations per second."""
        url = f"--url={case.scheme}://127.0.0.1:{self._server(case).ports[case.scheme]}"
        if case in RELAYS:
            load = [f"--address=bench.{case.scheme}", f"--count={count}"]
            load += [
                f"--warm-up={WARM_UP}",
                f"--size={SIZE}",
                f"--in-flight={IN_FLIGHT}",
                f"--credit={IN_FLIGHT}",
            ]
            return float(run_load(self.trees, [url, f"--ca={self.ca}", *load])["rate"])
        done = subprocess.run(
            command("bench.logins", url, f"--ca={self.ca}", f"--mechanism={case.mechanism}",
                    f"--count={count}"),
            env=environment(self.trees.loops), capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise LoadFailed(done.stderr.strip() or f"exit status {done.returncode}")
        return count / float(json.loads(done.stdout)["seconds"])

    def _finish(self, counts: dict[Case, int]) -> None:
        for case in counts:
            relay = case in RELAYS
            unit, time = (MESSAGES, TIME) if relay else (CONNECTIONS, LOGIN_TIME)
            self.report.figures.append(Figure(case.name, OURS, unit, self.rates[case]))
            if self.times.get(case):
                self.report.figures.append(Figure(case.name, PROCESSOR, time, self.times[case]))
        for plain, *others in (RELAYS, LOGINS):
            base = self.times.get(plain, [])
            for case in others:
                times = self.times.get(case, [])
                # A very short run takes less processor time than the system measures.
                if case in counts and times and len(times) == len(base) and all(base):
                    ratio = statistics.median(a / b for a, b in zip(times, base, strict=True))
                    self.report.comparisons.append(
                        Comparison(case.name, PROCESSOR, plain.name, ratio)
                    )
