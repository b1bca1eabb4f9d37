"""Targets in turn, each in a process of its own, and what came of it."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.fuzz import corpus
from tests.fuzz.limits import MAX_MEMORY, SLOW, TIMEOUT
from tests.fuzz.targets import Target, load

ROOT = Path(__file__).resolve().parents[2]
_STATUS = re.compile(r"^#(\d+)\s+\S+.*?corp: (\d+).*?exec/s: (\d+)")
# Seconds after which a process is ended that should have ended on its own.
_GRACE = 60


@dataclass
class Outcome:
    """How it went with one target. `crashes` are files with inputs that fail."""

    target: str
    engine: str
    executions: int = 0
    rate: int = 0
    corpus: int = 0
    new: int = 0
    seconds: float = 0.0
    crashes: list[str] = field(default_factory=list)
    failure: str = ""

    def summary(self) -> dict[str, object]:
        """The same as JSON has it."""
        return asdict(self)


def engine_here() -> str:
    """`atheris` where it can be imported and sees the lines of Python run, else `hypothesis`."""
    if importlib.util.find_spec("atheris") is None:
        return "hypothesis"
    spec = importlib.util.find_spec("ferrymq_codec.reader")
    pure = spec is not None and spec.origin is not None and spec.origin.endswith(".py")
    return "atheris" if pure else "hypothesis"


def run_target(
    name: str,
    seconds: float,
    folder: Path,
    engine: str,
    seed: int,
    tell: Callable[[Outcome], None],
) -> Outcome:
    """Fuzz one target for a time. `tell` hears how far it has come."""
    outcome = Outcome(name, engine)
    inputs = folder / name / "corpus"
    artifacts = folder / name / "crashes"
    artifacts.mkdir(parents=True, exist_ok=True)
    target = load(name)
    corpus.spread(inputs, [*target.seeds(), *corpus.kept(name), *corpus.findings(name).values()])
    known = {path.name for path in artifacts.iterdir()}
    before = len(list(inputs.iterdir()))
    begun = time.monotonic()
    process = subprocess.Popen(
        _command(name, engine, seconds, inputs, artifacts, seed),
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env={**os.environ, "PYTHONHASHSEED": "0"},
    )
    try:
        said = _follow(process, outcome, tell)
        process.wait(_GRACE)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    outcome.seconds = round(time.monotonic() - begun, 1)
    outcome.corpus = len(list(inputs.iterdir()))
    outcome.new = outcome.corpus - before
    found = [path for path in artifacts.iterdir() if path.name not in known]
    outcome.crashes = sorted(
        str(path) for path in found if not _was_only_kept_waiting(path, target)
    )
    if process.returncode or outcome.crashes:
        outcome.failure = "".join(said[-60:]) or f"the process ended with {process.returncode}"
    return outcome


def _was_only_kept_waiting(artifact: Path, target: Target) -> bool:
    """Try an input again that was slow by the clock, and remove it if it needs little processor
    time: others had the processor, or the first input had to wait for modules."""
    if not artifact.name.startswith("slow-unit-"):
        return False
    began = time.process_time()
    try:
        target.one(artifact.read_bytes())
    except Exception:
        return False
    if time.process_time() - began > SLOW:
        return False
    artifact.unlink()
    return True


def _follow(
    process: subprocess.Popen[str], outcome: Outcome, tell: Callable[[Outcome], None]
) -> list[str]:
    """Read what the process says until it has ended; the lines that are no progress."""
    said: list[str] = []
    assert process.stderr is not None
    for line in process.stderr:
        found = _STATUS.match(line)
        if found is None:
            said.append(line)
            del said[:-400]
            continue
        outcome.executions, outcome.corpus, outcome.rate = (int(part) for part in found.groups())
        tell(outcome)
    return said


def _command(
    name: str, engine: str, seconds: float, inputs: Path, artifacts: Path, seed: int
) -> Sequence[str]:
    if engine == "hypothesis":
        return [
            sys.executable, "-m", "tests.fuzz.hypothesis_worker", name,
            f"--seconds={seconds}", f"--corpus={inputs}", f"--artifacts={artifacts}",
            f"--seed={seed}",
        ]  # fmt: skip
    return [
        sys.executable, "-m", "tests.fuzz.atheris_worker", name,
        f"-max_total_time={max(1, round(seconds))}", f"-timeout={TIMEOUT}",
        f"-rss_limit_mb={MAX_MEMORY >> 20}", f"-max_len={corpus.LONGEST}",
        f"-report_slow_units={SLOW}",
        f"-artifact_prefix={artifacts}/", "-print_final_stats=0", f"-seed={seed or 1}",
        "-reload=0", str(inputs),
    ]  # fmt: skip


def default_folder() -> Path:
    """Where inputs and crashes go that nobody wanted elsewhere."""
    build = ROOT / "build"
    try:
        (build / "fuzz").mkdir(parents=True, exist_ok=True)
    except OSError:
        return Path(tempfile.mkdtemp(prefix="ferrymq-fuzz-"))
    return build / "fuzz"
