"""What can be done to a cluster under load, and how often it is.

A fault does its harm and lets time pass; what it has left is mended by its caller.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Final, TypeAlias

from tests.crash.failovers import database_faults, member_faults, network_faults
from tests.crash.failovers.cluster_stage import ClusterStage
from tests.crash.failovers.member import BrokerMember

Fault: TypeAlias = Callable[[ClusterStage, BrokerMember, Random], Awaitable[None]]
# Faults with their kinds.
Faults: TypeAlias = Sequence[tuple[str, Fault]]

# What is done to members and their ways, and what is done to the database.
_TO_MEMBERS: Final[tuple[Fault, ...]] = (
    member_faults.kill_leader,
    member_faults.kill_standby,
    member_faults.kill_all,
    member_faults.kill_successor,
    member_faults.freeze_leader,
    member_faults.freeze_briefly,
    member_faults.lose_disk,
    network_faults.part_leader,
    network_faults.part_standby,
    network_faults.part_all,
    network_faults.cut_statement,
    network_faults.lose_answers,
    network_faults.slow_network,
)
_TO_DATABASE: Final[tuple[Fault, ...]] = (
    database_faults.promote_database,
    database_faults.restart_database,
    database_faults.set_database_back,
    database_faults.cancel_waits,
    database_faults.split_database,
    database_faults.freeze_database,
    network_faults.part_servers,
)


async def two_at_once(stage: ClusterStage, leader: BrokerMember, random: Random) -> None:
    """Something is done to members, and something to the database."""
    pair = (random.choice(_TO_MEMBERS), random.choice(_TO_DATABASE))
    stage.ledger.write("combines", faults=[fault.__name__ for fault in pair])
    randoms = [Random(random.random()) for _ in pair]
    await asyncio.gather(
        *(fault(stage, leader, own) for fault, own in zip(pair, randoms, strict=True))
    )


# How often which fault is drawn.
WEIGHTS: Final[dict[str, tuple[Fault, int]]] = {
    "kill leader": (member_faults.kill_leader, 10),
    "kill standby": (member_faults.kill_standby, 2),
    "kill all": (member_faults.kill_all, 3),
    "kill successor": (member_faults.kill_successor, 4),
    "lose disk": (member_faults.lose_disk, 6),
    "stop leader": (member_faults.stop_process, 3),
    "freeze leader": (member_faults.freeze_leader, 6),
    "freeze briefly": (member_faults.freeze_briefly, 4),
    "kill before lag is gone": (member_faults.kill_before_lag_is_gone, 5),
    "switch over": (member_faults.switch_over, 8),
    "fence": (member_faults.fence, 4),
    "part leader": (network_faults.part_leader, 8),
    "fence late leader": (member_faults.fence_late_leader, 4),
    "part standby": (network_faults.part_standby, 2),
    "part all": (network_faults.part_all, 4),
    "part all for long": (network_faults.part_all_for_long, 2),
    "part servers": (network_faults.part_servers, 4),
    "part clients": (network_faults.part_clients, 2),
    "cut statement": (network_faults.cut_statement, 4),
    "lose answers": (network_faults.lose_answers, 5),
    "slow network": (network_faults.slow_network, 2),
    "promote database": (database_faults.promote_database, 10),
    "restart database": (database_faults.restart_database, 5),
    "set database back": (database_faults.set_database_back, 6),
    "cancel waits": (database_faults.cancel_waits, 6),
    "split database": (database_faults.split_database, 6),
    "freeze database": (database_faults.freeze_database, 5),
    "two at once": (two_at_once, 30),
}
# Only where the clocks can be set.
CLOCK_WEIGHTS: Final[dict[str, tuple[Fault, int]]] = {
    "step clock of member": (member_faults.step_member_clock, 15),
    "step clock of database": (database_faults.step_database_clock, 25),
}
# Only where the disk of the database can be filled.
DISK_WEIGHTS: Final[dict[str, tuple[Fault, int]]] = {"full disk": (database_faults.fill_disk, 30)}


def random_faults(seed: int, count: int, *, clocks: bool = False, disk: bool = False) -> Faults:
    """Faults of all kinds."""
    random = Random(f"{seed} faults")
    weights = WEIGHTS | (CLOCK_WEIGHTS if clocks else {}) | (DISK_WEIGHTS if disk else {})
    kinds = random.choices(list(weights), [weight for _, weight in weights.values()], k=count)
    return [(kind, weights[kind][0]) for kind in kinds]
