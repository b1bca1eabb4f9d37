"""One target without atheris: known inputs changed at random, through Hypothesis, which makes what
fails small. In a process of its own, because what is found may end that.

python -m tests.fuzz.hypothesis_worker TARGET --seconds N --corpus FOLDER --artifacts FOLDER
"""

from __future__ import annotations

import argparse
import hashlib
import resource
import signal
import sys
import time
import traceback
from pathlib import Path
from random import Random
from types import FrameType

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st

from tests.fuzz import corpus
from tests.fuzz.limits import MAX_MEMORY, TIMEOUT
from tests.fuzz.targets import Target, load

_ROUND = 200


class HangError(BaseException):
    """An input took too long."""


def explore(target: Target, inputs: list[bytes], seed: int, examples: int) -> None:
    """Try this many changed inputs. Raises what the target raised, with the smallest input that
    does so as its `fuzz_input`."""

    @seeded(seed)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.sampled_from(inputs), st.integers(0, 2**32), st.integers(1, 6))
    def attempt(data: bytes, seed: int, changes: int) -> None:
        random = Random(seed)
        for _ in range(changes):
            data = target.mutate(random, data)
        data = data[: corpus.LONGEST]
        try:
            target.one(data)
        except BaseException as error:
            error.fuzz_input = data  # type: ignore[attr-defined]
            raise

    attempt()


def main() -> int:
    """Explore until the time is over; the status is 77 if a fault was found."""
    parser = argparse.ArgumentParser()
    parser.add_argument("target")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--artifacts", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    given_ = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    signal.signal(signal.SIGALRM, _hang)
    target = load(given_.target)
    guarded = target._replace(one=lambda data: _guarded(target, data))
    inputs = corpus.collect(given_.corpus) or [b""]
    end = time.monotonic() + given_.seconds
    begun = time.monotonic()
    rounds = 0
    while time.monotonic() < end:
        try:
            explore(guarded, inputs, given_.seed + rounds, _ROUND)
        except BaseException as error:
            data: bytes = getattr(error, "fuzz_input", b"")
            kind = "timeout" if isinstance(error, HangError) else "crash"
            name = f"{kind}-{hashlib.sha1(data, usedforsecurity=False).hexdigest()}"
            given_.artifacts.mkdir(parents=True, exist_ok=True)
            (given_.artifacts / name).write_bytes(data)
            traceback.print_exception(error)
            return 77
        rounds += 1
        rate = rounds * _ROUND / (time.monotonic() - begun)
        sys.stderr.write(f"#{rounds * _ROUND} pulse corp: {len(inputs)} exec/s: {rate:.0f}\n")
        sys.stderr.flush()
    return 0


def _guarded(target: Target, data: bytes) -> None:
    signal.setitimer(signal.ITIMER_REAL, TIMEOUT)
    try:
        target.one(data)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _hang(number: int, frame: FrameType | None) -> None:
    raise HangError(f"an input took more than {TIMEOUT} s")


if __name__ == "__main__":
    sys.exit(main())
