"""The command `python -m bench`: the parts to measure, and the destination of results."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from rich.console import Console

import hatch_build
from bench import compare, foreign, markdown, profile, summary
from bench.machine import load, machine, two_processors, versions
from bench.parts import amqp_0_9_1, azure, large, memory, rate, start, target_latency, workers
from bench.parts.broker import DURABLE, IN_MEMORY, BrokerBench, Candidate, Case
from bench.parts.clients import ClientBench
from bench.parts.durable import DurableBench
from bench.parts.features import CONFIGURATION, FeatureBench
from bench.parts.recovery import COUNT, recover
from bench.parts.replicated import FAILOVERS, ReplicatedBench
from bench.parts.security import SCHEMES, SecurityBench, make_certificates
from bench.parts.watching import NODES as WATCHED_NODES
from bench.parts.watching import PERIODS, WatchingBench
from bench.process import (
    Server,
    broker,
    durable_broker,
    echo,
    paging_broker,
    proton_broker,
    roomy_broker,
)
from bench.results import Report
from bench.tables import show
from bench.tree import ROOT, Trees, command, environment, variant_on

PARTS: Final = (
    "codec", "broker", "clients", "features", "security", "latency", "durable", "memory",
    "azure", "amqp-0-9-1", "start", "watching", "replicated", "target-latency",
    "workers", "large", "rate",
)  # fmt: skip
FORMAT: Final = 1
PAGE: Final = ROOT / "docs" / "performance.md"
"""The page with the results, from which README.md has its figures."""
# The width of tables that are written to a file.
FILE_WIDTH: Final = 132


@dataclass(frozen=True)
class Extent:
    """The duration of the parts: rounds, and seconds or pings for each contender in a round."""

    codec_rounds: int = 7
    codec_seconds: float = 0.2
    broker_rounds: int = 5
    broker_seconds: float = 1.0
    client_messages: int = 10_000
    latency_rounds: int = 7
    latency_pings: int = 500
    pause_ms: float = 1.0
    # The number by which the sizes in the memory part, and the size of the recovered queue, are
    # divided.
    memory_shrink: int = 1
    start_rounds: int = 15

    @classmethod
    def quick(cls) -> Extent:
        """Return a short run to check that everything works; its figures are rough."""
        return cls(3, 0.03, 1, 0.2, 500, 3, 100, 1.0, 50, 1)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure ferrymq beside its peers. `python -m bench profile broker --help` "
        "shows where the broker spends its time, `python -m bench compare --help` what has moved "
        "between two runs.",
    )
    made.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; default: all")
    made.add_argument("--quick", action="store_true", help="a short run with rough figures")
    made.add_argument("--pure", action="store_true", help="measure the interpreted modules")
    made.add_argument("--json", metavar="FILE", help="write the results to FILE, - for stdout")
    made.add_argument("--markdown", metavar="FILE", help="update the tables in a document")
    made.add_argument("--from", dest="source", metavar="FILE", help="show an earlier --json FILE")
    made.add_argument(
        "--readme", action="store_true",
        help="write the figures of README.md and the chart again from docs/performance.md; "
        "measure nothing",
    )  # fmt: skip
    made.add_argument(
        "--peer", action="append", default=[], metavar="NAME=URL",
        help="another running broker: of AMQP 1.0 for the parts broker, rate and clients, where "
        "the path of the URL is the address of its queue, without a path `bench`; of AMQP 0-9-1 "
        "for the part amqp-0-9-1, which needs the URL's port",
    )  # fmt: skip
    made.add_argument(
        "--with", dest="peers", action="append", default=[], choices=sorted(foreign.PEERS),
        help="start this broker as a peer, if it is installed: nats and proton for the parts "
        "broker and rate, rabbitmq for these, clients and amqp-0-9-1; may be given several times",
    )  # fmt: skip
    made.add_argument(
        "--amqpload", metavar="PATH", default=os.environ.get("AMQPLOAD") or None,
        help="an external load tool to use besides our own client; also from $AMQPLOAD",
    )  # fmt: skip
    made.add_argument("--check", action="store_true", help="fail if a demanded figure is missed")
    return made


def profile_parser() -> argparse.ArgumentParser:
    """Return the parser of `python -m bench profile`."""
    made = argparse.ArgumentParser(
        prog="python -m bench profile",
        description=profile.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("what", choices=["broker"])
    made.add_argument("--tool", choices=profile.TOOLS, default="perf")
    made.add_argument("--seconds", type=float, default=5.0)
    cases = ", ".join(f"{i}: {case.name}" for i, case in enumerate(IN_MEMORY))
    made.add_argument("--case", type=int, choices=range(len(IN_MEMORY)), default=0, help=cases)
    made.add_argument("--out", type=Path, default=Path("build/broker.profile"))
    return made


def main(argv: list[str] | None = None) -> int:
    """Run the command and return the exit status."""
    given = sys.argv[1:] if argv is None else argv
    if given[:1] == ["profile"]:
        chosen = profile_parser().parse_args(given[1:])
        chosen.out.parent.mkdir(parents=True, exist_ok=True)
        return profile.profile_broker(
            chosen.tool, chosen.out, seconds=chosen.seconds, case=chosen.case
        )
    if given[:1] == ["compare"]:
        return compare.main(given[1:])
    if "--readme" in given:
        parser().parse_args(given)
        return 0 if summary.write(PAGE) else 1
    return carry_out(parser(), given, PARTS, measure)


def carry_out(
    made: argparse.ArgumentParser,
    argv: Sequence[str] | None,
    parts: Collection[str],
    measure: Callable[[argparse.Namespace, Console], dict[str, Any]],
) -> int:
    """Measure the given parts, or read results from a file; show them, return the exit status."""
    arguments = made.parse_args(argv)
    unknown = [part for part in arguments.parts if part not in parts]
    if unknown:
        made.error(f"no such part: {', '.join(unknown)}; there are {', '.join(parts)}")
    console = Console(stderr=arguments.json == "-")
    if not console.is_terminal:
        console.width = FILE_WIDTH
    if arguments.source is not None:
        run: dict[str, Any] = json.loads(Path(arguments.source).read_text("utf-8"))
    else:
        try:
            run = measure(arguments, console)
        except (hatch_build.BuildError, RuntimeError) as error:
            console.print(str(error), style="bold red", markup=False, highlight=False)
            return 1
    for report in run["reports"]:
        show(console, Report.from_json(report), run["machine"])
    if arguments.json == "-":
        print(json.dumps(run, indent=1))
    elif arguments.json is not None:
        Path(arguments.json).write_text(json.dumps(run, indent=1) + "\n", "utf-8")
    if arguments.markdown is not None:
        page = Path(arguments.markdown)
        markdown.write(page, run)
        if summary.write(page):
            console.print("README.md and the charts are written from it", style="dim")
    return verdict(run, check=arguments.check)


def verdict(run: dict[str, Any], *, check: bool) -> int:
    """Return the exit status: 1 if something failed or, with `check`, a demand was missed."""
    for report in run["reports"]:
        if report["failures"]:
            return 1
        rows = [*report["figures"], *report["comparisons"]]
        if check and any(row["met"] is False for row in rows):
            return 1
    return 0


def measure(arguments: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Measure the given parts and return the results in the form for JSON."""
    trees = Trees(pure=arguments.pure)
    for message in trees.messages:
        console.print(message, style="dim", highlight=False)
    extent = Extent.quick() if arguments.quick else Extent()
    where = machine()
    reports: list[Report] = []
    for part in arguments.parts or PARTS:
        console.print(f"measuring: {part}", style="dim")
        if part == "codec":
            reports.append(codec(trees, extent))
        elif part == "broker":
            reports.append(brokers(trees, extent, arguments))
        elif part == "clients":
            reports.append(clients(trees, extent, arguments))
        elif part == "features":
            reports.append(features(trees, extent))
        elif part == "security":
            reports.append(security(trees, extent))
        elif part == "latency":
            reports.append(latency(trees, extent))
        elif part == "durable":
            reports.append(durable(trees, extent, arguments.amqpload))
        elif part == "start":
            reports.append(start.measure(trees, extent.start_rounds))
        elif part == "replicated":
            reports.append(replicated(trees, extent))
        elif part == "watching":
            reports.append(watching(trees, extent))
        elif part == "target-latency":
            reports.append(
                target_latency.measure(
                    trees, rounds=extent.broker_rounds, seconds=2 * extent.broker_seconds
                )
            )
        elif part == "workers":
            with folder_on_disk() as folder:
                reports.append(
                    workers.measure(
                        trees,
                        Path(folder),
                        rounds=extent.broker_rounds,
                        seconds=2 * extent.broker_seconds,
                        connections=200 // extent.memory_shrink,
                    )
                )
        elif part == "large":
            amount = 480 // extent.memory_shrink
            reports.append(large.measure(trees, rounds=extent.broker_rounds, amount=amount))
        elif part == "rate":
            reports.append(even_rate(trees, extent, arguments))
        elif part == "azure":
            with tempfile.TemporaryDirectory() as folder:
                reports.append(azure.measure(trees, Path(folder), shrink=extent.memory_shrink))
        elif part == "amqp-0-9-1":
            reports.append(other_version(trees, extent, arguments))
        else:
            reports.append(occupied(trees, extent))
    if trees.pure:
        for report in reports:
            report.drop_demands()
    where["load after"] = load()
    return {
        "format": FORMAT,
        "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC",
        "quick": arguments.quick,
        "machine": where,
        "reports": [report.to_json() for report in reports],
    }


def other_version(trees: Trees, extent: Extent, arguments: argparse.Namespace) -> Report:
    """Measure the part `amqp-0-9-1`, with ferrymq's broker and the given ones."""
    ports, notes = _other_ports(arguments.peer), []
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if "rabbitmq" in arguments.peers:
            try:
                peer = foreign.rabbitmq(stack, trees, folder)[0]
                ports[peer.name] = urlsplit(peer.url).port or 0
            except foreign.NotInstalled as error:
                notes.append(str(error))
        report = amqp_0_9_1.measure(
            trees, folder, ports, extent.broker_rounds, extent.memory_shrink
        )
    report.notes += notes
    return report


def _other_ports(peers: list[str]) -> dict[str, int]:
    """Return the ports of other brokers on this machine, by their names."""
    found = {}
    for peer in peers:
        name, _, url = peer.partition("=")
        found[name] = urlsplit(url).port or 5672
    return found


def codec(trees: Trees, extent: Extent) -> Report:
    """Measure the part `codec`, in a separate process."""
    return worker(
        trees, "codec", f"--rounds={extent.codec_rounds}", f"--seconds={extent.codec_seconds}"
    )


def features(trees: Trees, extent: Extent) -> Report:
    """Measure the part `features`, with one broker that has some nodes of each kind."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "features.toml")
        config.write_text(CONFIGURATION, "utf-8")
        with broker(trees, config) as server:
            report = FeatureBench(
                trees, server, rounds=extent.broker_rounds, seconds=extent.broker_seconds
            ).measure()
    report.build = {
        "broker": trees.broker_variant(),
        "client": variant_on(trees.loops, "bench.loops.load"),
        **versions(),
    }
    return report


def watching(trees: Trees, extent: Extent) -> Report:
    """Measure the part `watching`, with brokers that differ only in how they are watched."""
    nodes, periods = WATCHED_NODES // extent.memory_shrink, (
        1 if extent.memory_shrink > 1 else PERIODS
    )
    with tempfile.TemporaryDirectory() as folder:
        report = WatchingBench(
            trees,
            Path(folder),
            rounds=extent.broker_rounds,
            seconds=3 * extent.broker_seconds,
            nodes=nodes,
            periods=periods,
        ).measure()
    report.build = {
        "broker": trees.broker_variant(),
        "client": variant_on(trees.loops, "bench.loops.load"),
        **versions(),
    }
    return report


def replicated(trees: Trees, extent: Extent) -> Report:
    """Measure the part `replicated`, with a pair of PostgreSQL servers."""
    # The tests have the pair, and say what is missing where there is no PostgreSQL.
    from tests.support.postgresql import PostgresqlPair, find_programs

    if find_programs() is None:
        return Report("replicated", notes=["PostgreSQL is not installed"])
    with folder_on_disk() as folder, PostgresqlPair(fsync=True) as pair:
        report = ReplicatedBench(
            trees,
            Path(folder),
            pair,
            rounds=extent.broker_rounds,
            seconds=extent.broker_seconds,
            pings=extent.latency_pings,
            failovers=FAILOVERS if extent.memory_shrink == 1 else 1,
        ).measure()
    report.build = {
        "broker": trees.broker_variant(),
        "client": variant_on(trees.loops, "bench.loops.load"),
        **versions(),
    }
    return report


def security(trees: Trees, extent: Extent) -> Report:
    """Measure the part `security`, with a broker open to everybody and one with rules."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_certificates(trees, folder)
        with (
            broker(trees, folder / "open.toml", SCHEMES) as everybodys,
            broker(trees, folder / "guarded.toml", SCHEMES) as guarded,
        ):
            report = SecurityBench(
                trees,
                (everybodys, guarded),
                folder,
                rounds=extent.broker_rounds,
                seconds=extent.broker_seconds,
            ).measure()
    report.build = {
        "broker": trees.broker_variant(),
        "client": variant_on(trees.loops, "bench.loops.load"),
        **versions(),
    }
    return report


def latency(trees: Trees, extent: Extent) -> Report:
    """Measure the part `latency`, with the servers and the client in separate processes."""
    client_cpu, server_cpu = two_processors()
    with broker(trees) as ours, echo(trees) as other:
        # Without pinning the scheduler places client and server on one processor or on two, and a
        # ping takes one of two very different times.
        ours.pin(server_cpu)
        other.pin(server_cpu)
        report = worker(
            trees,
            "latency",
            f"--cpu={client_cpu}",
            f"--rounds={extent.latency_rounds}",
            f"--count={extent.latency_pings}",
            f"--pause={extent.pause_ms}",
            f"--echo={other.port}",
            f"--broker={ours.name}={ours.port}",
        )
    report.build = {"broker": trees.broker_variant(), **report.build}
    return report


def durable(trees: Trees, extent: Extent, tool: str | None) -> Report:
    """Measure the part `durable`, with brokers that have stores in a new folder."""
    with folder_on_disk() as folder:
        report = DurableBench(
            trees,
            Path(folder),
            rounds=extent.broker_rounds,
            seconds=extent.broker_seconds,
            pings=extent.latency_pings,
            tool=tool,
        ).measure()
        recovered = recover(trees, Path(folder), COUNT // extent.memory_shrink)
    report.figures += recovered.figures
    report.failures += recovered.failures
    report.build = {
        "broker": trees.broker_variant(),
        "client": variant_on(trees.loops, "bench.loops.load"),
        **versions(),
    }
    return report


def folder_on_disk() -> tempfile.TemporaryDirectory[str]:
    """Make a folder for stores on a disk: the folder of temporary files may be in memory."""
    (ROOT / "build").mkdir(exist_ok=True)
    return tempfile.TemporaryDirectory(prefix="store-", dir=ROOT / "build")


def memory_server(
    trees: Trees, folder: Path, case: memory.Case, shrink: int
) -> contextlib.AbstractContextManager[Server]:
    """Return the broker that a case of the part `memory` needs; its files are in `folder`."""
    if case.paging:
        return paging_broker(trees, folder, memory.PAGE_OUT // shrink)
    if case.default:
        return durable_broker(trees, folder / "data", {})
    return roomy_broker(trees, folder, case.limits)


def occupied(trees: Trees, extent: Extent) -> Report:
    """Measure the part `memory`, each case in a separate process with a new broker."""
    whole = Report("memory")
    for case, of_it in memory.CASES.items():
        with (
            folder_on_disk() as folder,
            memory_server(trees, Path(folder), of_it, extent.memory_shrink) as server,
        ):
            report = worker(
                trees,
                "memory",
                f"--case={case}",
                f"--port={server.port}",
                f"--pid={server.pid}",
                f"--monitoring={server.monitoring}",
                f"--shrink={extent.memory_shrink}",
            )
        whole.build = {"broker": trees.broker_variant(), **report.build}
        whole.figures += report.figures
        whole.failures += report.failures
    if extent.memory_shrink != 1:
        # A small run can use less memory than an empty broker, so the limits mean nothing.
        whole.drop_demands()
    return whole


def brokers(trees: Trees, extent: Extent, arguments: argparse.Namespace) -> Report:
    """Measure the part `broker`: ours, a small one on Proton's binding, the given ones, and a
    relay."""
    with contextlib.ExitStack() as stack:
        candidates: list[Candidate] = []
        notes: list[str] = []
        folder = Path(stack.enter_context(folder_on_disk()))
        ours = stack.enter_context(broker(trees))
        candidates.append(_candidate(ours, IN_MEMORY))
        stored = stack.enter_context(durable_broker(trees, folder / "ferrymq", {}))
        candidates.append(_candidate(stored, (DURABLE,)))
        try:
            candidates.append(_candidate(stack.enter_context(proton_broker(trees)), IN_MEMORY))
        except RuntimeError as error:
            notes.append(str(error).strip().splitlines()[-1])
        candidates += foreign.peers(stack, trees, folder, arguments.peer, arguments.peers, notes)
        bench = BrokerBench(
            trees,
            candidates,
            rounds=extent.broker_rounds,
            seconds=extent.broker_seconds,
            tool=arguments.amqpload,
        )
        report = bench.measure()
    report.notes += notes
    report.build = {
        "broker": trees.broker_variant(),
        "client": variant_on(trees.loops, "bench.loops.load"),
        **versions(),
    }
    return report


def even_rate(trees: Trees, extent: Extent, arguments: argparse.Namespace) -> Report:
    """Measure the part `rate`: ours, the given ones, and a relay."""
    with contextlib.ExitStack() as stack:
        notes: list[str] = []
        folder = Path(stack.enter_context(folder_on_disk()))
        candidates = [_candidate(stack.enter_context(broker(trees)), IN_MEMORY)]
        candidates += foreign.peers(stack, trees, folder, arguments.peer, arguments.peers, notes)
        report = rate.measure(
            trees,
            candidates,
            rounds=extent.broker_rounds,
            seconds=4 * extent.broker_seconds,
            tool=arguments.amqpload,
        )
    report.notes += notes
    return report


def _candidate(server: Server, cases: tuple[Case, ...]) -> Candidate:
    return Candidate(server.name, f"amqp://127.0.0.1:{server.port}", server.pid, cases=cases)


def clients(trees: Trees, extent: Extent, arguments: argparse.Namespace) -> Report:
    """Measure the part `clients`, with ferrymq's broker and the given ones."""
    with contextlib.ExitStack() as stack:
        ours = stack.enter_context(broker(trees))
        candidates = [Candidate(ours.name, f"amqp://127.0.0.1:{ours.port}")]
        candidates += [foreign.given(peer) for peer in arguments.peer]
        notes = []
        if "rabbitmq" in arguments.peers:
            try:
                candidates += foreign.rabbitmq(stack, trees, Path())
            except foreign.NotInstalled as error:
                notes.append(str(error))
        report = ClientBench(
            trees, candidates, rounds=extent.broker_rounds, count=extent.client_messages
        ).measure()
    report.notes += notes
    report.build = {
        "broker": trees.broker_variant(),
        "client": variant_on(trees.loops, "ferrymq.engine.connection"),
        **versions(),
    }
    return report


def worker(trees: Trees, part: str, *options: str) -> Report:
    """Run `bench.worker` and return its report, with a failure if the wrong variant ran."""
    done = subprocess.run(
        command("bench.worker", part, *options),
        env=environment(trees.loops),
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        failure = f"the measuring process ended with status {done.returncode}; see above"
        return Report(part, failures=[failure])
    report = Report.from_json(json.loads(done.stdout))
    wanted = "pure" if trees.pure else "compiled"
    for package in ("codec", "types", "engine", "loops"):
        if report.build.get(package) != wanted:
            report.failures.append(f"{package} ran {report.build.get(package)}, not {wanted}")
    return report
