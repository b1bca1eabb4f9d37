"""Faults of the database: its servers, their disk and their clock."""

from __future__ import annotations

import asyncio
from random import Random

from tests.crash.failovers.cluster_stage import ClusterStage
from tests.crash.failovers.member import TAKEOVER, BrokerMember
from tests.crash.failovers.member_faults import random_step


async def promote_database(stage: ClusterStage, leader: BrokerMember, random: Random) -> None:
    """SIGKILL to the primary, and its standby becomes the primary."""
    database = stage.database
    if random.random() < 0.4:
        # It has written what nobody else has, and must not have confirmed it.
        database.replication_way.hold()
        await asyncio.sleep(random.random() / 2)
    await database.kill_primary()
    await asyncio.sleep(random.choice((0.0, random.random())))
    await database.promote()
    await database.rejoin()


async def promote_late_database(stage: ClusterStage, leader: BrokerMember, random: Random) -> None:
    """The standby of the database hears nothing for a while, and then becomes the primary."""
    stage.database.replication_way.hold()
    await asyncio.sleep(0.5)
    await stage.database.kill_primary()
    await stage.database.promote()
    await stage.database.rejoin()


async def restart_database(stage: ClusterStage, leader: BrokerMember, random: Random) -> None:
    """SIGKILL to the primary, which is started again."""
    await stage.database.kill_primary()
    await asyncio.sleep(random.choice((0.0, random.random())))
    await stage.database.start_primary()


async def set_database_back(stage: ClusterStage, leader: BrokerMember, random: Random) -> None:
    """The primary dies with batches that only it has, and shows them after its next start; then it
    is lost, and its standby has never heard of them."""
    database = stage.database
    database.replication_way.hold()
    await asyncio.sleep(0.2 + random.random() / 2)
    await database.kill_primary()
    await database.start_primary()
    # Time for the members to connect again, and for a standby to read these batches.
    await asyncio.sleep(1 + random.random() * 2)
    await promote_database(stage, leader, random)


async def cancel_waits(stage: ClusterStage, leader: BrokerMember, random: Random) -> None:
    """Somebody cancels what members do in the database, while commits wait for its standby: the
    database then says that they have succeeded. After that, its primary may be lost."""
    database = stage.database
    how = random.choice(("pg_cancel_backend", "pg_cancel_backend", "pg_terminate_backend"))
    database.replication_way.hold()
    for _ in range(random.randint(1, 5)):
        await asyncio.sleep(0.1 + random.random() / 5)
        await database.execute(
            f"SELECT {how}(pid) FROM pg_stat_activity WHERE application_name LIKE 'ferrymq%'"
        )
    if random.random() < 0.6:
        await database.kill_primary()
        await database.promote()
        await database.rejoin()
    else:
        database.replication_way.release()


async def split_database(stage: ClusterStage, leader: BrokerMember, random: Random) -> None:
    """The standby of the database is promoted while the old primary lives. Some members may reach
    only the old one for a while."""
    database = stage.database
    old = database.pair.primary
    database.replication_way.hold()
    await asyncio.sleep(random.random() / 4)
    if random.random() < 0.7:
        for member in stage.members:
            if member is leader or random.random() < 0.3:
                database.way(member.name, database.pair.standby).refuse(True)
            else:
                database.way(member.name, old).refuse(True)
        await database.promote()
        await asyncio.sleep(random.random() * TAKEOVER)
    else:
        # They find the new one by themselves, although the old one accepts connections.
        await database.promote()
        await stage.wait_for_outcome()
    for member in stage.members:
        database.way(member.name, database.pair.primary).refuse(False)
    await database.rejoin()


async def freeze_database(stage: ClusterStage, leader: BrokerMember, random: Random) -> None:
    """SIGSTOP to all processes of the primary, or of the standby, or only to the one with which the
    standby receives, for a while."""
    pair = stage.database.pair
    server, title = random.choice(
        ((pair.primary, ""), (pair.standby, ""), (pair.standby, "walreceiver"))
    )
    await stage.database.run(server.pause, title)
    await asyncio.sleep(random.random() * TAKEOVER)
    await stage.database.run(server.resume)


async def fill_disk(stage: ClusterStage, leader: BrokerMember, random: Random) -> None:
    """The disk of the database is full for a while. A server that ends is started again."""
    assert stage.disk is not None
    stage.disk.fill(random.choice((0, 1 << 20, 8 << 20)))
    await asyncio.sleep(0.5 + random.random() * TAKEOVER)
    stage.disk.free()


async def step_database_clock(stage: ClusterStage, leader: BrokerMember, random: Random) -> None:
    """The time of day of the database is set, sometimes at the moment at which the leader dies."""
    stage.clocks["db"].set(random_step(random))
    if random.random() < 0.3:
        await stage.kill(leader)
    await asyncio.sleep(1.5 + random.random())
