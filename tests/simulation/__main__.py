"""Live through seeds: `python -m tests.simulation SEED [SEEDS]`."""

from __future__ import annotations

import argparse
import sys
import time
import traceback

from tests.simulation.world import World


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("seed", type=int)
    parser.add_argument("seeds", type=int, nargs="?", default=1)
    parser.add_argument("--unsafe", action="store_true", help="a disk that does not sync")
    parser.add_argument("--often", action="store_true", help="ordinary links only")
    arguments = parser.parse_args()
    failed: list[int] = []
    crashes = 0
    began = time.monotonic()
    for seed in range(arguments.seed, arguments.seed + arguments.seeds):
        world = World(seed, unsafe=arguments.unsafe, once=not arguments.often)
        try:
            world.run()
        except Exception:
            failed.append(seed)
            if len(failed) <= 3:
                traceback.print_exc()
        crashes += world.crashes
    seconds = time.monotonic() - began
    print(
        f"{arguments.seeds} seeds with {crashes} crashes in {seconds:.1f} s, "
        f"{60 * arguments.seeds / seconds:.0f} a minute; {len(failed)} failed {failed[:20]}"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
