"""A member of a cluster: a process that is a standby, and the leader when it is elected.

For each part there is a server of its own, on the same addresses. That of a standby has no nodes
and sends clients to the leader. When the member is elected, its records are brought to the end of
the journal, and a server recovers from them as at any start. When the lease is lost, this server is
thrown away with everything in its memory.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Self

from ferrymq_broker.clock import Clock
from ferrymq_broker.config.apply.live_settings import in_force
from ferrymq_broker.config.errors import ConfigError
from ferrymq_broker.config.model import Config
from ferrymq_broker.config.url import ListenAddress
from ferrymq_broker.event_log import log
from ferrymq_broker.replication.errors import ReplicationError
from ferrymq_broker.replication.shared_journal import STANDBY, SharedJournal
from ferrymq_broker.replication.waiting import Later, ask
from ferrymq_broker.server.cluster_role import ClusterRole, elsewhere
from ferrymq_broker.server.live_config import Reread
from ferrymq_broker.server.member_lease import MemberLease
from ferrymq_broker.server.member_records import MemberRecords
from ferrymq_broker.server.member_view import MemberView
from ferrymq_broker.server.server import BrokerServer
from ferrymq_broker.server.standby_config import standby_config, with_ports
from ferrymq_broker.server.startup_progress import OnProgress
from ferrymq_broker.server.term_events import TermEvents
from ferrymq_broker.store.errors import StoreError
from ferrymq_types.transport import Error

if TYPE_CHECKING:
    from ferrymq_broker.broker import Broker

# Seconds for the last changes before a switch-over.
_LAST_CHANGES: Final = 0.3


class ReplicatedServer:
    """A member of a cluster with its servers, inside a running event loop.

    The other arguments are those of `BrokerServer`. `later` calls a function after some seconds and
    returns a function that cancels that; the clock for leases is `Clock.boottime`.
    """

    def __init__(
        self,
        config: Config,
        journal: SharedJournal,
        clock: Clock | None = None,
        *,
        on_failure: Callable[[StoreError], object] | None = None,
        on_progress: OnProgress | None = None,
        reread: Reread | None = None,
        later: Later | None = None,
    ) -> None:
        self.config: Config = config
        self.clock: Clock = Clock() if clock is None else clock
        self.on_reload: list[Callable[[], object]] = []
        self._journal = journal
        self._on_failure = on_failure
        self._on_progress = on_progress
        self._reread = reread
        self._later: Later = _later if later is None else later
        settings = config.replication
        self.view: MemberView = MemberView(
            journal,
            settings.name,
            settings.cluster,
            settings.lease / 3000,
            self.clock.boottime,
            self._later,
        )
        self._server: BrokerServer | None = None
        self._records: MemberRecords | None = None
        self._lease: MemberLease | None = None
        self._life: asyncio.Task[None] | None = None
        # Set at each event of the lease, and at the end.
        self._changed = asyncio.Event()
        self._events = TermEvents(self.view, self._changed.set)
        self._is_ending = False
        # Whether the member could not become the leader, and should let others try.
        self._waits = False
        # Whether the leader's server is started, so that its broker may be used.
        self._is_serving = False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # -- for the process -------------------------------------------------------------------------

    @property
    def server(self) -> BrokerServer:
        """The present server."""
        assert self._server is not None
        return self._server

    @property
    def started_broker(self) -> Broker | None:
        """The broker of the present server; None while that starts or closes."""
        return self.server.started_broker

    @property
    def addresses(self) -> list[ListenAddress]:
        """The addresses of the listeners, in the order of the configuration."""
        return self.server.addresses

    @property
    def monitoring_url(self) -> str | None:
        """The URL of the monitoring listener; None without one."""
        return self.server.monitoring_url

    async def start(self) -> None:
        """Become a standby. Raises as `BrokerServer.start` does."""
        try:
            await self._stand_by()
        except BaseException:
            await self.close()
            raise
        self._life = asyncio.get_running_loop().create_task(self._live())

    def reload(self) -> None:
        """Read the configuration again. A standby applies it when it becomes the leader."""
        self.server.reload()
        if self._is_serving or self._reread is None:
            return
        try:
            wanted = self._reread().config
        except ConfigError as error:
            log.error("the settings stay as they were: the new ones are wrong", reason=str(error))
            return
        self.config = in_force(self.config, wanted, bool(self.config.personality.name), False)

    def hurry(self) -> None:
        """Make `close` wait no longer for clients to settle messages."""
        self.server.hurry()

    async def close(self) -> None:
        """Stop in good order: the leader lets its clients settle, appends everything and gives the
        lease back. Raises `StoreError` if the store has failed."""
        self._is_ending = True
        self._changed.set()
        life, self._life = self._life, None
        if life is not None:
            if not self._is_serving:
                # A start that is under way changes nothing that would not be done again.
                life.cancel()
            await asyncio.wait((life,))
        self.view.stop()
        try:
            if self._records is not None:
                await self._records.stop()
        finally:
            try:
                if self._server is not None:
                    # A leader that must not write cannot tell its clients anything either.
                    if self._is_serving and self._lease is not None and self._lease.reason():
                        await self._server.dismiss(_away("this broker stops"))
                    else:
                        await self._server.close()
            finally:
                if self._lease is not None:
                    await self._lease.release()
                self._journal.close()

    # -- the life of a member --------------------------------------------------------------------

    async def _live(self) -> None:
        """Be a standby and the leader by turns, until the end."""
        try:
            while await self._until(lambda: self._events.is_elected) and await self._lead():
                await self._stand_by()
        except (StoreError, ReplicationError, OSError, ConfigError) as error:
            self._fail(error)
        except Exception as error:
            log.exception("internal error")
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """Give up: the process cannot be a member."""
        log.critical("the member has failed", reason=str(error))
        if self._on_failure is not None:
            self._on_failure(error if isinstance(error, StoreError) else StoreError(str(error)))

    async def _until(self, condition: Callable[[], bool]) -> bool:
        """Wait until a condition holds; return false if the member ends before that."""
        while not self._is_ending:
            if condition():
                return True
            self._changed.clear()
            await self._changed.wait()
        return False

    async def _stand_by(self) -> None:
        """Begin to follow the journal, and to wait for the lease."""
        view, settings = self.view, self.config.replication
        self._events = TermEvents(view, self._changed.set)
        view.role, view.step = STANDBY, ""
        view.resume()
        role = ClusterRole(view.cluster, view, view.standby_reason, refusal=view.refusal)
        await self._serve(standby_config(self.config), role, self._on_progress)
        self.config = with_ports(self.config, self.addresses, self.monitoring_url)
        view.address = self.config.advertise or ""
        self._records = records = MemberRecords(
            self.config, self._journal, view, self._later, self._fail
        )
        view.applied = lambda: records.applied
        records.start()
        self._lease = MemberLease(
            self._journal, settings, view.address, self._events, self.clock.boottime, self._later
        )
        self._lease.start(self._waits)
        self._waits = False
        view.look()
        log.info("standing by", member=settings.name, cluster=settings.cluster)

    async def _serve(self, config: Config, role: ClusterRole, progress: OnProgress | None) -> None:
        server = BrokerServer(
            config,
            self.clock,
            on_failure=self._on_failure,
            on_progress=progress,
            reread=None if role.refusal is not None else self._reread,
            role=role,
        )
        self._server = server
        server.on_reload += self.on_reload
        await server.start()

    async def _lead(self) -> bool:
        """Serve clients until the lease is lost or given up; return false if the member ends before
        that."""
        view = self.view
        view.step = "becoming the leader"
        events = self._events
        assert self._records is not None
        is_ready = await self._records.catch_up(lambda: events.is_lost or self._is_ending)
        if not is_ready or events.is_lost:
            self._waits = not events.is_lost
            await self._leave()
            return not self._is_ending
        await self._records.end_following()
        await self.server.dismiss(_away("this broker becomes the leader"))
        lease = self._lease
        assert lease is not None
        role = ClusterRole(
            view.cluster,
            view,
            lease.reason,
            lease.term,
            may_write=lease.may_write,
            appender=lease.appender(),
        )
        await self._serve(self.config, role, None)
        self._is_serving = True
        assert self.server.store is not None
        self._records.lead(self.server.store)
        view.applied = self._last_batch
        view.step = ""
        view.elections += 1
        events.serve(self.server)
        view.look()
        log.info("leading", member=view.name, term=lease.term)
        if not await self._until(lambda: events.is_over):
            return False
        await self._leave()
        return True

    async def _leave(self) -> None:
        """Be the leader no more: give the lease back if it is still there, send the clients away,
        and throw the memory away."""
        view, events = self.view, self._events
        reason = "this broker has lost the lease"
        address = name = ""
        if events.is_lost:
            lease = events.lost_to
            if lease is not None and lease.holder not in ("", view.name):
                address, name = lease.address, lease.holder
        else:
            reason = "this broker hands over"
            name = events.successor
            await self.server.finish_writing(_LAST_CHANGES)
            with contextlib.suppress(ReplicationError, TimeoutError):
                async with asyncio.timeout(_LAST_CHANGES):
                    view.take_members(await ask(self._journal.members))
            address = view.address_of(name)
            assert self._lease is not None
            await self._lease.release()
        log.info(reason, term=view.term, leader=name)
        if self._is_serving:
            # What a reload has changed stays.
            self.config = self.server.config
        self._is_serving = False
        events.end()
        view.role = STANDBY
        if self._records is not None:
            await self._records.stop()
            self._records = None
        await self.server.dismiss(elsewhere(address, name, reason))

    def _last_batch(self) -> int:
        return int(self.server.broker.agenda.changes.stable)


def _later(seconds: float, call: Callable[[], None]) -> Callable[[], None]:
    return asyncio.get_running_loop().call_later(seconds, call).cancel


def _away(reason: str) -> Error:
    return elsewhere("", "", reason)
