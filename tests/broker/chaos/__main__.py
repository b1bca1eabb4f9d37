"""Play with one seed, or with many one after the other: SEED STEPS [SEEDS [stored] [streams]]."""

from __future__ import annotations

import logging
import sys
from collections import Counter

from tests.broker.chaos.play import Failure, Play


def main(arguments: list[str]) -> int:
    """How many of the plays failed."""
    logging.disable(logging.CRITICAL)
    stored, streams = "stored" in arguments, "streams" in arguments
    words = ("stored", "streams")
    seed, steps, *rest = (int(argument) for argument in arguments if argument not in words)
    happened: Counter[str] = Counter()
    failures = 0
    for number in range(seed, seed + (rest[0] if rest else 1)):
        try:
            happened += Play(number, steps, stored, streams).run()
        except Failure as failure:
            failures += 1
            print(failure, file=sys.stderr)
            if not rest or rest[0] == 1:
                raise
    print(dict(happened))
    return failures


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
