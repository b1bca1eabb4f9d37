"""The part of a member in the lease, by its configuration, from a standby to the end of its
term."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Final

from ferrymq_broker.config.replication import Replication
from ferrymq_broker.event_log import log
from ferrymq_broker.replication.leadership import Leadership, LeadershipEvents, LeaseOptions
from ferrymq_broker.replication.leadership_states import LeadershipState
from ferrymq_broker.replication.shared_journal import SharedJournal
from ferrymq_broker.replication.waiting import Later
from ferrymq_broker.store.appender import AppenderOptions

# Seconds for the release of the lease.
_RELEASE: Final = 5.0
# The longest time, as a part of the lease, that a member waits before it takes a free one, so that
# not all try at once.
_DELAY: Final = 0.03


class MemberLease:
    """The leadership of a member. `time` is the clock for leases."""

    def __init__(
        self,
        journal: SharedJournal,
        settings: Replication,
        advertised: str,
        events: LeadershipEvents,
        time: Callable[[], float],
        later: Later,
    ) -> None:
        self._seconds = settings.lease / 1000
        self._both = settings.acknowledge == "both"
        self._later = later
        self._leadership = Leadership(
            journal,
            LeaseOptions(
                settings.name,
                advertised,
                self._seconds,
                settings.step_down_after / 1000,
                random.uniform(0.0, self._seconds * _DELAY),
            ),
            events,
            time,
            later,
        )

    def start(self, waits: bool) -> None:
        """Take the lease when it is free; with `waits` others may try first."""
        if waits:
            self._later(self._seconds, self._leadership.start)
        else:
            self._leadership.start()

    @property
    def term(self) -> int:
        """The term of the lease that the member has, or had."""
        return self._leadership.term

    def may_write(self) -> bool:
        """See `Leadership.may_write`."""
        return self._leadership.may_write()

    def reason(self) -> str:
        """Return why the leader may not write; empty if it may."""
        if self.may_write():
            return ""
        if self._leadership.state is LeadershipState.LOST:
            return "the lease is lost"
        return "suspended: the lease was not renewed in time"

    def appender(self) -> AppenderOptions:
        """Return how the leader's store appends its batches."""
        return AppenderOptions(self._leadership, self.term, _on_store_lost, self._both)

    async def release(self) -> None:
        """End the leadership, and give the lease back if it is the member's."""
        leadership = self._leadership
        if leadership.state is LeadershipState.STANDBY:
            leadership.stop()
            return
        released = asyncio.Event()
        leadership.step_down(released.set)
        try:
            async with asyncio.timeout(_RELEASE):
                await released.wait()
        except TimeoutError:
            log.warning("the lease could not be given back; it ends by itself")
            leadership.stop()


def _on_store_lost(error: Exception) -> None:
    # The member learns it from its events, or has given the lease back itself.
    log.debug("the store appends nothing more", reason=str(error))
