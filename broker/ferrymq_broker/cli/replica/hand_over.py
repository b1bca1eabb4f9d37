"""A planned switch of the leader: ``ferrymq replica promote`` and ``demote``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeAlias

from ferrymq_broker.replication.errors import ReplicationError
from ferrymq_broker.replication.shared_journal import Lease, Member, SharedJournal
from ferrymq_broker.replication.waiting import ask

# Seconds between two looks at the lease, also if nothing is notified.
_LOOK_SECONDS: Final = 0.5

# Chooses the member that becomes the leader from all members and the lease. Raises
# `ReplicationError` if there is none.
Choice: TypeAlias = Callable[[Sequence[Member], Lease], str]


def find_member(name: str) -> Choice:
    """Return the choice of the member of this name, which has to run."""

    def choose(members: Sequence[Member], lease: Lease) -> str:
        found = next((member for member in members if member.name == name), None)
        if found is None:
            names = ", ".join(member.name for member in members) or "none"
            raise ReplicationError(f"there is no member {name!r}; the members are: {names}")
        if not found.runs:
            raise ReplicationError(
                f"the member {name!r} does not run: it was last seen {found.seen:.0f} s ago"
            )
        return name

    return choose


def choose_successor(members: Sequence[Member], lease: Lease) -> str:
    """Choose the running member that is the least behind and is not the leader."""
    standbys = [one for one in members if one.name != lease.holder and one.runs]
    if not standbys:
        raise ReplicationError("there is no other member that runs, so none can be the leader")
    return max(standbys, key=lambda one: one.applied).name


async def ask_to_hand_over(journal: SharedJournal, choice: Choice, timeout: float) -> Lease:
    """Ask the leader to hand over, and return the lease of the new leader.

    Raises `ReplicationError` if the new one is not leader after `timeout` seconds; the leader is
    not asked any more then.
    """
    changed = asyncio.Event()
    journal.watch(changed.set)
    lease = await ask(journal.observe)
    name = choice(await ask(journal.members), lease)
    if lease.holder == name and lease.remaining > 0:
        raise ReplicationError(f"the member {name!r} is the leader already")
    await ask(partial(journal.name_successor, name))
    try:
        async with asyncio.timeout(timeout):
            while (lease := await ask(journal.observe)).holder != name:
                try:
                    await asyncio.wait_for(changed.wait(), _LOOK_SECONDS)
                except TimeoutError:
                    pass
                changed.clear()
    except TimeoutError:
        await ask(partial(journal.name_successor, ""))
        raise ReplicationError(
            f"the member {name!r} was not the leader after {timeout:g} s; the leader goes on"
        ) from None
    return lease
