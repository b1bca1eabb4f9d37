"""Play with one seed, or with many one after the other: SEED STEPS [SEEDS]."""

from __future__ import annotations

import logging
import sys
from collections import Counter

from tests.broker.chaos.play import Failure, Play


def main(arguments: list[str]) -> int:
    """How many of the plays failed."""
    logging.disable(logging.CRITICAL)
    seed, steps, *rest = (int(argument) for argument in arguments)
    happened: Counter[str] = Counter()
    failures = 0
    for number in range(seed, seed + (rest[0] if rest else 1)):
        try:
            happened += Play(number, steps).run()
        except Failure as failure:
            failures += 1
            print(failure, file=sys.stderr)
            if not rest:
                raise
    print(dict(happened))
    return failures


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
