"""Faults of the network between brokers, clients and the database."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from random import Random

from tests.crash.failovers.cluster_stage import ClusterStage
from tests.crash.failovers.member import LEASE, STEP_DOWN, TAKEOVER, BrokerMember


async def part_leader(stage: ClusterStage, leader: BrokerMember, random: Random) -> None:
    """The leader cannot reach the database until another one has the lease. What it has sent
    arrives afterwards, or is lost."""
    with _parted(stage, [leader], random):
        if random.random() < 0.7:
            await stage.wait_until(*stage.others(leader))
        else:
            await asyncio.sleep(random.random() * LEASE)
    await asyncio.sleep(random.random())


async def part_standby(stage: ClusterStage, leader: BrokerMember, random: Random) -> None:
    """A standby cannot reach the database for a while."""
    with _parted(stage, [random.choice(stage.others(leader))], random):
        await asyncio.sleep(random.random() * TAKEOVER)


async def part_all(stage: ClusterStage, leader: BrokerMember, random: Random) -> None:
    """No member can reach the database: nobody else can have the lease."""
    with _parted(stage, stage.members, random):
        await asyncio.sleep(0.5 + random.random() * TAKEOVER)


async def part_all_for_long(stage: ClusterStage, leader: BrokerMember, random: Random) -> None:
    """No member can reach the database for so long that the leader gives up."""
    with _parted(stage, stage.members, random):
        await asyncio.sleep(STEP_DOWN + random.random() * LEASE)


async def part_servers(stage: ClusterStage, leader: BrokerMember, random: Random) -> None:
    """The standby of the database cannot reach the primary: no commit is confirmed."""
    stage.database.replication_way.hold()
    await asyncio.sleep(0.3 + random.random() * TAKEOVER)
    stage.database.replication_way.release(reset=random.random() < 0.5)


async def part_clients(stage: ClusterStage, leader: BrokerMember, random: Random) -> None:
    """Clients cannot reach the leader for a moment, or their connections break."""
    if random.random() < 0.5:
        leader.clients.hold()
        await asyncio.sleep(0.2 + random.random())
        leader.clients.release(reset=random.random() < 0.5)
    else:
        leader.clients.reset()


async def cut_statement(stage: ClusterStage, leader: BrokerMember, random: Random) -> None:
    """The connections of the leader with the database break within a statement, some times."""
    for _ in range(random.randint(1, 5)):
        for way in stage.database.ways[leader.name]:
            way.cut_within(random.choice((1, 50, 1000, 20_000)) + random.randrange(100))
        await asyncio.sleep(random.random() / 3)


async def lose_answers(stage: ClusterStage, leader: BrokerMember, random: Random) -> None:
    """What the leader sends arrives, and the answers of the database do not; then its connections
    break."""
    ways = stage.database.ways[leader.name]
    for way in ways:
        way.hold(requests=False)
    await asyncio.sleep(random.random() * LEASE)
    for way in ways:
        way.release(reset=True)
    await asyncio.sleep(0.2)


async def slow_network(stage: ClusterStage, leader: BrokerMember, random: Random) -> None:
    """Everything between brokers and database takes longer for a while."""
    ways = [way for ways in stage.database.ways.values() for way in ways]
    for way in ways:
        way.delay = 0.01 + random.random() * 0.3
    await asyncio.sleep(1 + random.random() * 2)
    for way in ways:
        way.delay = 0.0


@contextmanager
def _parted(stage: ClusterStage, members: Sequence[BrokerMember], random: Random) -> Iterator[None]:
    """Part these members from the database inside the block. What was held arrives at the end, or
    is lost."""
    ways = [way for member in members for way in stage.database.ways[member.name]]
    how = random.choice(("hold", "hold", "refuse", "requests", "answers"))
    for way in ways:
        if how == "refuse":
            way.refuse(True)
        else:
            way.hold(requests=how != "answers", answers=how != "requests")
    yield
    for way in ways:
        way.refuse(False)
        way.release(reset=random.random() < 0.3)
