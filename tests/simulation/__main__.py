"""Live through seeds: `python -m tests.simulation SEED [SEEDS]`."""

from __future__ import annotations

import argparse
import logging
import sys
import time
import traceback

from tests.simulation.failover_world import FailoverWorld
from tests.simulation.lease_world import LeaseWorld
from tests.simulation.link_world import LinkWorld
from tests.simulation.stream_world import StreamWorld
from tests.simulation.world import SMALL_DISK, World


def make_world(seed: int, arguments: argparse.Namespace) -> World | LeaseWorld:
    """The world of a seed, of the kind that the command names."""
    if arguments.leases or arguments.failover:
        faults = {
            "fenced": not arguments.no_fence,
            "replicated": not arguments.early,
            "gated": not arguments.no_gate,
        }
        if arguments.leases:
            return LeaseWorld(seed, **faults)
        return FailoverWorld(seed, compared=not arguments.blind, **faults)
    if arguments.streams:
        return StreamWorld(seed, unsafe=arguments.unsafe)
    if arguments.links:
        return LinkWorld(seed, unsafe=arguments.unsafe)
    return World(
        seed,
        unsafe=arguments.unsafe,
        once=not arguments.often,
        capacity=SMALL_DISK if arguments.small else None,
        clocks=arguments.clocks,
    )


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
    parser.add_argument("--failover", action="store_true", help="several members and a database")
    parser.add_argument(
        "--leases", action="store_true", help="the same without clients, much faster"
    )
    parser.add_argument("--no-fence", action="store_true", help="a database that takes old terms")
    parser.add_argument("--early", action="store_true", help="commits confirmed before replication")
    parser.add_argument("--blind", action="store_true", help="records that are never compared")
    parser.add_argument("--no-gate", action="store_true", help="leaders that ignore their deadline")
    arguments = parser.parse_args()
    # Connections that break and disks that are full are no news here.
    logging.getLogger("ferrymq").setLevel(logging.CRITICAL)
    failed: list[int] = []
    crashes = elections = 0
    began = time.monotonic()
    for seed in range(arguments.seed, arguments.seed + arguments.seeds):
        world = make_world(seed, arguments)
        try:
            world.run()
        except Exception:
            failed.append(seed)
            if len(failed) <= 3:
                traceback.print_exc()
        crashes += world.crashes
        if isinstance(world, LeaseWorld | FailoverWorld):
            elections += world.elections
    seconds = time.monotonic() - began
    events = f"{crashes} crashes" + (f" and {elections} elections" if elections else "")
    print(
        f"{arguments.seeds} seeds with {events} in {seconds:.1f} s, "
        f"{60 * arguments.seeds / seconds:.0f} a minute; {len(failed)} failed {failed[:20]}"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
