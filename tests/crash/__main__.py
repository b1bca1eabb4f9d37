"""Kill brokers, cut their power, and see that they keep their word.

python -m tests.crash run --kills 1000 --cuts 300      # many rounds, with seeds of their own
python -m tests.crash round kills SEED --deaths 25     # one of them again
python -m tests.crash check LEDGER                     # judge a ledger that was kept
python -m tests.crash verify --stores 500              # what `ferrymq store verify` says of stores
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import secrets
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.crash.campaign import ROUNDS, Campaign, again
from tests.crash.checks import check
from tests.crash.failovers.clocks import why_no_clocks
from tests.crash.ledger import Ledger, summary
from tests.crash.needs import why_not
from tests.crash.processes import Starter
from tests.crash.verifying import Verifying, verify_stores

CONSOLE = Console(stderr=True, highlight=False)


def main() -> int:
    """Run the command line; the status is 1 if the broker did not keep its word."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="rounds of every kind")
    run.add_argument("--kills", type=int, default=100, help="SIGKILLs at random moments")
    run.add_argument("--calls", type=int, default=40, help="SIGKILLs at the n-th call")
    run.add_argument("--failures", type=int, default=20, help="writes and syncs that fail")
    run.add_argument("--cuts", type=int, default=30, help="power cuts")
    run.add_argument("--failovers", type=int, default=0, help="faults of a cluster of brokers")
    run.add_argument("--seed", type=int, help="begin with this seed")
    run.add_argument("--json", type=Path, help="write the summary to this file; - is the output")
    one = commands.add_parser("round", help="one round")
    one.add_argument("kind", choices=ROUNDS)
    one.add_argument("seed", type=int)
    one.add_argument("--deaths", type=int, default=25)
    stores = commands.add_parser("verify", help="stores of many shapes, and what verify says")
    stores.add_argument("--stores", type=int, default=500)
    stores.add_argument("--seed", type=int, help="begin with this seed")
    for command in (run, one, stores):
        command.add_argument("--folder", type=Path, help="where directories and ledgers go")
    judge = commands.add_parser("check", help="judge a ledger")
    judge.add_argument("ledger", type=Path)
    given = parser.parse_args()
    if given.command == "check":
        return _check(given.ledger)
    folder = given.folder or Path(tempfile.mkdtemp(prefix="ferrymq-crash-"))
    folder.mkdir(parents=True, exist_ok=True)
    if given.command == "round":
        return asyncio.run(_round(given.kind, given.seed, folder, given.deaths))
    if given.command == "verify":
        return asyncio.run(_verify(given.seed, given.stores, folder))
    return _run(given, folder)


async def _verify(seed: int | None, count: int, folder: Path) -> int:
    first = secrets.randbits(32) if seed is None else seed
    CONSOLE.print(f"seed {first}, in {folder}")
    with _progress() as progress:
        task = progress.add_task("stores", total=count, said="")

        def tell(so_far: Verifying) -> None:
            said = f"{len(so_far.wrong)} wrong"
            progress.update(task, completed=so_far.stores, said=said)

        campaign = await verify_stores(first, count, folder, tell)
    sys.stdout.write(json.dumps(asdict(campaign), indent=2) + "\n")
    return 1 if campaign.wrong else 0


def _run(given: argparse.Namespace, folder: Path) -> int:
    seed = secrets.randbits(32) if given.seed is None else given.seed
    wanted = {kind: getattr(given, kind) for kind in ROUNDS}
    needs = {"calls": "strace", "failures": "strace", "cuts": "disks", "failovers": "postgresql"}
    for kind, tools in needs.items():
        if wanted[kind] and (reason := why_not(tools)):
            CONSOLE.print(f"no {kind}: {reason}")
            wanted[kind] = 0
    if wanted["failovers"] and (reason := why_no_clocks()):
        CONSOLE.print(f"no steps of clocks: {reason}")
    campaign = Campaign(seed, folder, wanted)
    CONSOLE.print(f"seed {seed}, in {folder}")
    with _progress() as progress:
        tasks = {kind: progress.add_task(kind, total=wanted[kind], said="") for kind in wanted}

        def tell(so_far: Campaign) -> None:
            said = (
                f"{so_far.counts['sent and accepted']} acknowledged, "
                f"{so_far.counts['confirmed']} settled, {len(so_far.failed)} rounds failed"
            )
            for kind, task in tasks.items():
                progress.update(task, completed=so_far.done[kind], said=said)

        # Ctrl-C ends the run early; the rounds that have ended count.
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(campaign.run(tell))
    for kind, deaths, result in campaign.failed:
        CONSOLE.print(result.describe(), f"\n  again: {again(kind, deaths, result.seed)}")
    text = json.dumps(campaign.summary(), indent=2)
    if given.json is None or str(given.json) == "-":
        sys.stdout.write(text + "\n")
    else:
        given.json.write_text(text + "\n")
    return 1 if campaign.failed else 0


async def _round(kind: str, seed: int, folder: Path, deaths: int) -> int:
    starter = Starter()
    play, _ = ROUNDS[kind]
    try:
        result = await play(starter, seed, folder, deaths)
    finally:
        starter.close()
    CONSOLE.print(f"{result.seconds:.1f} s, {json.dumps(result.counts)}")
    if result.violations:
        CONSOLE.print(result.describe(50))
    return 1 if result.violations else 0


def _check(ledger: Path) -> int:
    entries = Ledger.load(ledger)
    CONSOLE.print(json.dumps(summary(entries)))
    violations = check(entries)
    for violation in violations:
        sys.stdout.write(f"{violation.rule}: {violation.what}\n")
    return 1 if violations else 0


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[said]}"),
        console=CONSOLE,
    )


if __name__ == "__main__":
    sys.exit(main())
