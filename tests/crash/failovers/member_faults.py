"""Faults of processes of brokers, and what an administrator does."""

from __future__ import annotations

import asyncio
import shutil
from random import Random

from tests.crash.failovers.cluster_stage import ClusterStage
from tests.crash.failovers.member import LEASE, BrokerMember


async def kill_leader(stage: ClusterStage, leader: BrokerMember, random: Random) -> None:
    """SIGKILL to the leader, which comes back before or after another one takes over."""
    await stage.kill(leader)
    if random.random() < 0.7:
        await stage.wait_for_leader()
    else:
        await leader.start()


async def kill_standby(stage: ClusterStage, leader: BrokerMember, random: Random) -> None:
    """SIGKILL to a standby."""
    await stage.kill(random.choice(stage.others(leader)))
    await asyncio.sleep(random.random() / 2)


async def kill_all(stage: ClusterStage, leader: BrokerMember, random: Random) -> None:
    """SIGKILL to all members."""
    members = random.sample(stage.members, len(stage.members))
    for member in members:
        await stage.kill(member)
    await random.choice(members).start()


async def kill_successor(stage: ClusterStage, leader: BrokerMember, random: Random) -> None:
    """SIGKILL to the leader, and to the next one while it takes over or soon after."""
    await stage.kill(leader)
    await asyncio.sleep(LEASE * 0.6 + random.random() * LEASE)
    await stage.kill(random.choice(stage.others(leader)))
    await leader.start()


async def lose_disk(stage: ClusterStage, leader: BrokerMember, random: Random) -> None:
    """SIGKILL to a member, which begins again without files."""
    member = random.choice(stage.members)
    await stage.kill(member)
    shutil.rmtree(member.data)
    await member.start()
    if random.random() < 0.5:
        # It takes over while it loads a snapshot.
        for other in stage.others(member):
            await stage.kill(other)
        await stage.wait_for_leader()


async def stop_process(stage: ClusterStage, leader: BrokerMember, random: Random) -> None:
    """SIGTERM to the leader, which gives its lease back."""
    status, said = await leader.terminate()
    stage.look_for_shame(said)
    if status != 0:
        stage.wrong(f"SIGTERM ended {leader.name} with status {status}: {said[-2000:]}")
    await stage.wait_for_leader()


async def freeze_leader(stage: ClusterStage, leader: BrokerMember, random: Random) -> None:
    """SIGSTOP to the leader until another one has the lease, then SIGCONT."""
    leader.stop()
    await stage.wait_for_leader()
    await asyncio.sleep(random.random() / 2)
    leader.go_on()
    await asyncio.sleep(random.random())


async def freeze_briefly(stage: ClusterStage, leader: BrokerMember, random: Random) -> None:
    """SIGSTOP to the leader for about the length of its lease, then SIGCONT."""
    leader.stop()
    await asyncio.sleep(LEASE * (0.3 + random.random()))
    leader.go_on()
    await asyncio.sleep(0.2)


async def kill_before_lag_is_gone(
    stage: ClusterStage, leader: BrokerMember, random: Random
) -> None:
    """SIGSTOP to a standby for a while; it goes on at the moment at which the leader is killed."""
    standby = random.choice(stage.others(leader))
    standby.stop()
    await asyncio.sleep(0.5 + random.random() * 2)
    await stage.kill(leader)
    standby.go_on()
    await stage.wait_for_leader()


async def switch_over(stage: ClusterStage, leader: BrokerMember, random: Random) -> None:
    """A planned switch-over to another member, which the administrator may leave to the leader."""
    others = stage.others(leader)
    successor = random.choice(others)
    if random.random() < 0.3:
        await stage.administrate("demote")
        await stage.wait_until(*others)
    else:
        await stage.administrate("promote", successor.name)
        await stage.wait_until(successor)


async def fence(stage: ClusterStage, leader: BrokerMember, random: Random) -> None:
    """A fence for whoever is leader."""
    await stage.administrate("fence", "--yes")
    await asyncio.sleep(0.2)


async def fence_late_leader(stage: ClusterStage, leader: BrokerMember, random: Random) -> None:
    """A fence, after the leader has sent a batch and before the batch arrives. Nobody else takes
    the lease at that moment."""
    for other in stage.others(leader):
        other.stop()
    for way in stage.database.ways[leader.name]:
        way.hold(answers=False)
    await asyncio.sleep(0.3)
    await stage.administrate("fence", "--yes")
    for way in stage.database.ways[leader.name]:
        way.release()
    await asyncio.sleep(0.3)
    for other in stage.others(leader):
        other.go_on()


async def step_member_clock(stage: ClusterStage, leader: BrokerMember, random: Random) -> None:
    """The time of day of a broker is set."""
    member = random.choice(stage.members)
    stage.clocks[member.name].set(random_step(random))
    await asyncio.sleep(1.5 + random.random())


def random_step(random: Random) -> float:
    """The seconds by which a clock is set: less than the lease, and more."""
    return random.choice((-1, 1)) * random.choice((LEASE / 2, LEASE * 2, LEASE * 5))
