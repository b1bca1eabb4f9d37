"""The cost of a cluster: durable messages with the journal on PostgreSQL, and on a single broker.

PostgreSQL is a primary and a synchronous standby of this machine, which sync their disks. The same
load goes through a broker with a store, through a leader without a standby, and through a leader
with one. *Bare appends* are the limit: batches of the same size as the leader's, written one after
the other into a table of the same primary by a program that does nothing else.

At last a client sends one message after the other while the leader is killed, and while it hands
over. The time without service is the longest time between two outcomes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from bench.machine import processor_seconds
from bench.parts.broker import MESSAGES, OURS, LoadFailed, run_load
from bench.parts.durable import DURABLE, IDLE, SIZE
from bench.parts.latency import US, percentile
from bench.process import Server, durable_broker, free_port
from bench.results import Comparison, Figure, Report
from bench.tree import Trees, command, environment

TIME: Final = "µs/message"
BARE: Final = "bare appends"
SINGLE: Final = "a single broker with a store"
ALONE: Final = "a leader without standby"
PAIR: Final = "a leader and a standby"
IN_FLIGHT: Final = 1000
# What the leader has to reach of the bare appends.
DEMAND: Final = 0.6
PROBE: Final = 2_000
SHARES: Final = {"p50": 0.50, "p99": 0.99}
# Fail-overs of each kind, and the lease in seconds.
FAILOVERS: Final = 5
LEASE: Final = 3
# A time without service is longer than these seconds.
NOTHING: Final = 0.05
# Seconds in which a member becomes what it should be, and for which bare appends are measured.
PATIENCE: Final = 60.0
BARE_SECONDS: Final = 1.5

_CONFIGURATION: Final = """
advertise = "amqp://127.0.0.1:{port}"
[[listener]]
url = "amqp://127.0.0.1:{port}"
[http]
url = "http://127.0.0.1:{http}"
[store]
path = "{data}"
[replication]
engine = "postgresql"
url = "{database}"
cluster = "{cluster}"
name = "{name}"
lease = {lease}
[log]
level = "warning"
"""


class Member:
    """A member of a cluster, which can be killed and started again."""

    def __init__(self, trees: Trees, folder: Path, name: str, cluster: str, database: str) -> None:
        self.trees = trees
        self.name = name
        self.port, self.http = free_port(), free_port()
        self.url = f"amqp://127.0.0.1:{self.port}"
        self.config = folder / f"{cluster}-{name}.toml"
        text = _CONFIGURATION.format(
            port=self.port, http=self.http, data=folder / f"{cluster}-{name}", cluster=cluster,
            name=name, database=database, lease=LEASE,
        )  # fmt: skip
        self.config.write_text(text, "utf-8")
        self.server = self._new()

    def _new(self) -> Server:
        arguments = command("ferrymq_broker", "serve", f"--config={self.config}")
        return Server(OURS, arguments, self.trees.broker)

    def start(self) -> None:
        """Start the process."""
        self.server = self._new()
        self.server.__enter__()

    def is_leader(self) -> bool:
        """Return whether the member serves clients."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http}/readyz", timeout=5):
                return True
        except (urllib.error.URLError, OSError):
            return False

    def wait_until_following(self) -> None:
        """Wait until the member is a standby that has all batches. Raises `OSError`."""
        wait_until(self._is_following, f"the standby {self.name}")

    def _is_following(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http}/readyz", timeout=5):
                return False
        except urllib.error.HTTPError as error:
            return " 0 batches behind" in error.read().decode()
        except OSError:
            return False


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Wait until a condition holds. Raises `OSError` when that takes too long."""
    until = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > until:
            raise OSError(f"{what} did not come about in {PATIENCE:g} s")
        time.sleep(0.02)


class ReplicatedBench:
    """The whole part, with stores in `folder`. `pair` is a running pair of PostgreSQL servers."""

    def __init__(
        self, trees: Trees, folder: Path, pair: Any, *, rounds: int, seconds: float, pings: int,
        failovers: int = FAILOVERS,
    ) -> None:  # fmt: skip
        self.trees = trees
        self.folder = folder
        self.pair = pair
        self.rounds = rounds
        self.seconds = seconds
        self.pings = pings
        self.failovers = failovers
        options: dict[str, Any] = {"rounds": rounds, "bytes": SIZE, "in_flight": IN_FLIGHT}
        self.report = Report("replicated", options={**options, "lease": f"{LEASE} s"})
        self._values: dict[tuple[str, str, str], list[float]] = {}

    def measure(self) -> Report:
        """Run everything and return the report, which includes failures."""
        self.pair.primary.execute("CREATE TABLE bare (number bigserial PRIMARY KEY, data bytea)")
        self.pair.primary.execute("ALTER TABLE bare ALTER data SET STORAGE EXTERNAL")
        with contextlib.ExitStack() as stack:
            single = stack.enter_context(durable_broker(self.trees, self.folder / "single", {}))
            [alone] = stack.enter_context(self._cluster("alone", ["one"]))
            members = stack.enter_context(self._cluster("pair", ["one", "two"]))
            try:
                self._measure_load(single, alone, members)
                self._measure_alone(single, alone, members)
            except (LoadFailed, OSError) as error:
                self.report.failures.append(str(error))
            for kind in ("the leader is killed", "planned switch-over"):
                try:
                    for _ in range(self.failovers):
                        self._fail_over(members, kind)
                except (OSError, TimeoutError) as error:
                    self.report.failures.append(f"{kind}: {error}")
        self._finish()
        return self.report

    @contextlib.contextmanager
    def _cluster(self, cluster: str, names: list[str]) -> Iterator[list[Member]]:
        self._command("replica", "init", f"--url={self.pair.url()}", f"--cluster={cluster}")
        members = [
            Member(self.trees, self.folder, name, cluster, self.pair.url()) for name in names
        ]
        try:
            members[0].start()
            wait_until(members[0].is_leader, f"the leader of {cluster}")
            for other in members[1:]:
                other.start()
                other.wait_until_following()
            yield members
        finally:
            for member in members:
                member.server.stop()

    def _command(self, *arguments: str) -> None:
        done = subprocess.run(
            command("ferrymq_broker", *arguments), env=environment(self.trees.broker),
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(done.stderr.strip() or f"exit status {done.returncode}")

    def _add(self, case: str, contender: str, unit: str, value: float) -> None:
        self._values.setdefault((case, contender, unit), []).append(value)

    # -- many ------------------------------------------------------------------------------

    def _measure_load(self, single: Server, alone: Member, members: list[Member]) -> None:
        case = "1 KiB, durable, through a queue"
        leader, standby = members
        counts: dict[str, int] = {}
        ports = {SINGLE: single.port, ALONE: alone.port, PAIR: leader.port}
        for name, port in ports.items():
            counts[name] = max(PROBE, int(self._load(port, PROBE) * self.seconds))
        for round in range(self.rounds):
            shift = round % len(ports)
            names = list(ports)
            for name in (*names[shift:], *names[:shift]):
                before = self._journal(name)
                used = processor_seconds(standby.server.pid)
                count = counts[name]
                self._add(case, name, MESSAGES, self._load(ports[name], count))
                if name == SINGLE:
                    continue
                batches, size = (b - a for a, b in zip(before, self._journal(name), strict=True))
                in_batch = count * 1.05 / batches
                self._add("messages in a batch", name, "messages", in_batch)
                payload = count * 1.05 * SIZE
                self._add("bytes of batches for a byte of payload", name, "B", size / payload)
                each = statistics.fmean(self._bare(int(size / batches)))
                self._add(case, f"{BARE}, {name}", MESSAGES, in_batch / each)
                if name == PAIR:
                    standby.wait_until_following()
                    used = processor_seconds(standby.server.pid) - used
                    micros = 1e6 * used / (count * 1.05)
                    self._add(case, "the standby's processor time", TIME, micros)

    def _load(self, port: int, count: int) -> float:
        arguments = [
            f"--url=amqp://127.0.0.1:{port}",
            "--address=bench-replicated",
            f"--count={count}",
            f"--warm-up={count // 20}",
            f"--size={SIZE}",
            f"--in-flight={IN_FLIGHT}",
            f"--credit={IN_FLIGHT}",
            f"--head={DURABLE}",
            f"--idle={IDLE}",
        ]
        return float(run_load(self.trees, arguments)["rate"])

    def _journal(self, name: str) -> tuple[int, int]:
        """Return the batches of a cluster so far, and their bytes."""
        cluster = {ALONE: "alone", PAIR: "pair"}.get(name, "")
        rows = self.pair.primary.execute(
            "SELECT coalesce(max(number), 0), coalesce(max(total), 0) FROM ferrymq.batch "
            f"WHERE cluster = '{cluster}'"
        )
        return int(rows[0][0]), int(rows[0][1])

    def _bare(self, size: int, count: int = 0) -> list[float]:
        """Return the seconds of each of `count` appends of this size; 0 stands for as many as are
        made in a second and a half."""
        import psycopg

        data = os.urandom(size)
        statement = "INSERT INTO bare (data) VALUES (%b)"
        found: list[float] = []
        with psycopg.connect(self.pair.primary.url(), autocommit=True) as connection:
            for _ in range(20):
                connection.execute(statement, [data])
            begun = last = time.perf_counter()
            while len(found) < count or (count == 0 and last - begun < BARE_SECONDS):
                connection.execute(statement, [data])
                now = time.perf_counter()
                found.append(now - last)
                last = now
            connection.execute("TRUNCATE bare")
        return found

    # -- one -------------------------------------------------------------------------------

    def _measure_alone(self, single: Server, alone: Member, members: list[Member]) -> None:
        ports = {SINGLE: single.port, ALONE: alone.port, PAIR: members[0].port}
        for _ in range(self.rounds):
            for name, port in ports.items():
                self._note_alone(name, self._sends(port))
            self._note_alone(BARE, [1e6 * each for each in self._bare(SIZE, self.pings)])

    def _note_alone(self, name: str, times: list[float]) -> None:
        for kind, share in SHARES.items():
            case = f"1 KiB, durable, one alone until it is answered, {kind}"
            self._add(case, name, US, percentile(times, share))

    def _sends(self, port: int) -> list[float]:
        done = subprocess.run(
            command("bench.peers.one_by_one", str(port), str(SIZE), str(self.pings), DURABLE),
            env=environment(self.trees.loops), capture_output=True, text=True, check=False,
        )  # fmt: skip
        try:
            found: list[float] = json.loads(done.stdout)
        except json.JSONDecodeError:
            raise LoadFailed(done.stderr.strip() or f"exit status {done.returncode}") from None
        return found

    # -- fail-overs ------------------------------------------------------------------------

    def _fail_over(self, members: list[Member], kind: str) -> None:
        [leader] = [one for one in members if one.is_leader()]
        [standby] = [one for one in members if one is not leader]
        standby.wait_until_following()
        is_kill = "killed" in kind

        def happen() -> None:
            if is_kill:
                leader.server.kill()
            else:
                arguments = ["replica", "promote", standby.name, f"--url={self.pair.url()}"]
                self._command(*arguments, "--cluster=pair")

        gap = asyncio.run(longest_gap([leader.url, standby.url], happen))
        self._add(f"without service, {kind}", OURS, "s", gap)
        if is_kill:
            leader.server.stop()
            leader.start()
        wait_until(standby.is_leader, "the new leader")

    # -- the end ---------------------------------------------------------------------------

    def _finish(self) -> None:
        report = self.report
        for (case, contender, unit), values in self._values.items():
            report.figures.append(Figure(case, contender, unit, values))
        case = "1 KiB, durable, through a queue"
        for name in (ALONE, PAIR):
            ours = self._values.get((case, name, MESSAGES), [])
            for peer, demand in ((f"{BARE}, {name}", DEMAND), (SINGLE, None)):
                theirs = self._values.get((case, peer, MESSAGES), [])
                if ours and len(ours) == len(theirs):
                    ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
                    report.comparisons.append(Comparison(case, name, peer, ratio, demand))


async def longest_gap(urls: list[str], happen: Callable[[], None]) -> float:
    """Send one durable message after the other, let something happen, and return the longest time
    in seconds between two outcomes."""
    import ferrymq

    message = ferrymq.Message(b"x" * SIZE, durable=True)
    longest = 0.0
    async with asyncio.timeout(PATIENCE), ferrymq.connect(urls) as connection:
        sender = await connection.sender("bench-failover")
        for _ in range(100):
            await sender.send(message)
        happening = asyncio.ensure_future(asyncio.to_thread(happen))
        last = time.monotonic()
        more = 100
        while more:
            await sender.send(message)
            now = time.monotonic()
            longest = max(longest, now - last)
            last = now
            # The old leader may still answer for a moment.
            if happening.done() and longest > NOTHING:
                more -= 1
        await happening
    return longest
