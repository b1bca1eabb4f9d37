"""Live through seeds: `python -m tests.simulation SEED [SEEDS]`."""

from __future__ import annotations

import argparse
import logging
import sys
import time
import traceback

from tests.simulation.link_world import LinkWorld
from tests.simulation.stream_world import StreamWorld
from tests.simulation.world import SMALL_DISK, World


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("seed", type=int)
    parser.add_argument("seeds", type=int, nargs="?", default=1)
    parser.add_argument("--unsafe", action="store_true", help="a disk that does not sync")
    parser.add_argument("--often", action="store_true", help="ordinary links only")
    parser.add_argument("--streams", action="store_true", help="a stream that is copied in chunks")
    parser.add_argument("--small", action="store_true", help="a disk that becomes full")
    parser.add_argument("--clocks", action="store_true", help="a wall clock that is set")
    parser.add_argument("--links", action="store_true", help="links in unusual states")
    arguments = parser.parse_args()
    # Connections that break and disks that are full are no news here.
    logging.getLogger("ferrymq").setLevel(logging.CRITICAL)
    failed: list[int] = []
    crashes = 0
    began = time.monotonic()
    for seed in range(arguments.seed, arguments.seed + arguments.seeds):
        if arguments.streams:
            world: World = StreamWorld(seed, unsafe=arguments.unsafe)
        elif arguments.links:
            world = LinkWorld(seed, unsafe=arguments.unsafe)
        else:
            world = World(
                seed,
                unsafe=arguments.unsafe,
                once=not arguments.often,
                capacity=SMALL_DISK if arguments.small else None,
                clocks=arguments.clocks,
            )
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
