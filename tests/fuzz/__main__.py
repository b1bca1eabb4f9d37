"""Look for inputs that do what none should.

python -m tests.fuzz run --seconds 600              # all targets, ten minutes together
python -m tests.fuzz run codec broker --seconds 60  # these
python -m tests.fuzz replay FILE [--target codec]   # one input again
python -m tests.fuzz minimise [TARGET...]           # what was found new into the repository
"""

from __future__ import annotations

import argparse
import json
import secrets
import sys
import traceback
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from tests.fuzz import corpus
from tests.fuzz.campaign import Outcome, default_folder, engine_here, run_target
from tests.fuzz.minimise import minimise
from tests.fuzz.targets import NAMES, load

CONSOLE = Console(stderr=True, highlight=False)


def main() -> int:
    """Run the command line; the status is 1 if something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="look for new ones")
    run.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(NAMES))
    run.add_argument("--seconds", type=float, default=60, help="for all targets together")
    run.add_argument("--corpus", type=Path, help="where inputs and crashes go; build/fuzz")
    run.add_argument("--engine", choices=("atheris", "hypothesis"))
    run.add_argument("--seed", type=int)
    run.add_argument("--json", action="store_true", help="print the outcome as JSON")
    again = commands.add_parser("replay", help="try one input, or all of the repository")
    again.add_argument("files", nargs="*", type=Path, metavar="FILE")
    again.add_argument("--target", choices=NAMES, help="if the path of the file does not say it")
    fewer = commands.add_parser("minimise", help="keep the inputs that reach something")
    fewer.add_argument("targets", nargs="*", metavar="TARGET")
    fewer.add_argument("--corpus", type=Path)
    fewer.add_argument("--longest", type=int, default=2048, help="bytes of an input")
    given = parser.parse_args()
    for name in getattr(given, "targets", ()):
        if name not in NAMES:
            parser.error(f"there is no target {name!r}; the targets are {', '.join(NAMES)}")
    if given.command == "run":
        return _run(given)
    if given.command == "replay":
        return _replay(given)
    return _minimise(given)


def _run(given: argparse.Namespace) -> int:
    names = given.targets or list(NAMES)
    folder: Path = given.corpus or default_folder()
    engine = given.engine or engine_here()
    seed = secrets.randbits(31) if given.seed is None else given.seed
    CONSOLE.print(f"seed {seed}, {engine}, in {folder}")
    outcomes = []
    with _progress() as progress:
        for name in names:
            task = progress.add_task(name, total=None, said="starting")

            def tell(so_far: Outcome, task: object = task) -> None:
                progress.update(
                    task,  # type: ignore[arg-type]
                    said=f"{so_far.executions} inputs, {so_far.rate}/s, {so_far.corpus} in corpus",
                )

            outcome = run_target(name, given.seconds / len(names), folder, engine, seed, tell)
            outcomes.append(outcome)
            bad = f", [red]{len(outcome.crashes)} found[/red]" if outcome.failure else ""
            said = f"{outcome.executions} inputs, {outcome.rate}/s, {outcome.corpus} in corpus"
            progress.update(task, total=1, completed=1, said=f"{said}, {outcome.new} new{bad}")
    failed = [outcome for outcome in outcomes if outcome.failure]
    for outcome in failed:
        CONSOLE.print(f"[red]{outcome.target}[/red]\n{escape(outcome.failure)}")
        for path in outcome.crashes:
            CONSOLE.print(f"again: python -m tests.fuzz replay {path}", soft_wrap=True)
    if given.json:
        sys.stdout.write(json.dumps([outcome.summary() for outcome in outcomes]) + "\n")
    total = sum(outcome.executions for outcome in outcomes)
    CONSOLE.print(f"{total} inputs, {len(failed)} of {len(outcomes)} targets failed")
    return 1 if failed else 0


def _replay(given: argparse.Namespace) -> int:
    bad = 0
    for path in given.files:
        name = given.target or next((part for part in path.parts if part in NAMES), None)
        if name is None:
            CONSOLE.print(f"{path}: of which target? --target says it")
            return 2
        bad += _try(name, path.name, path.read_bytes())
    if not given.files:
        for name in [given.target] if given.target else NAMES:
            inputs = corpus.findings(name)
            inputs |= {f"input {at}": data for at, data in enumerate(corpus.kept(name))}
            found = sum(_try(name, label, data) for label, data in inputs.items())
            CONSOLE.print(f"{name}: {len(inputs)} inputs, {found} fail")
            bad += found
    return 1 if bad else 0


def _try(name: str, label: str, data: bytes) -> int:
    try:
        load(name).one(data)
    except Exception:
        CONSOLE.print(f"{name}, {label}: {data[:200]!r}", markup=False)
        traceback.print_exc()
        return 1
    return 0


def _minimise(given: argparse.Namespace) -> int:
    folder = given.corpus or default_folder()
    for name in given.targets or NAMES:
        target = load(name)
        found = corpus.collect(folder / name / "corpus")
        inputs = [*corpus.kept(name), *target.seeds(), *found]
        chosen = minimise(target.one, inputs, given.longest)
        seeds = set(target.seeds())
        path = corpus.keep(name, [data for data in chosen if data not in seeds])
        CONSOLE.print(f"{name}: {len(chosen)} of {len(inputs)}, {path.stat().st_size} bytes")
    return 0


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description:14}"),
        BarColumn(bar_width=12),
        TimeElapsedColumn(),
        TextColumn("{task.fields[said]}"),
        console=CONSOLE,
    )


if __name__ == "__main__":
    sys.exit(main())
