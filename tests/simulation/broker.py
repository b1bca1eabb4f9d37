"""A broker that can be killed, on a simulated disk behind a simulated network."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from ferrymq.engine.settings import ConnectionSettings
from ferrymq_broker.broker import Broker
from ferrymq_broker.clock import Clock
from ferrymq_broker.connections.authentication import ClientTransport
from ferrymq_broker.connections.capabilities import OFFERED
from ferrymq_broker.connections.handler import ConnectionHandler
from ferrymq_broker.connections.output_turns import OutputGate
from ferrymq_broker.recovery.recover import recover
from ferrymq_broker.server.host_tables import HostTables
from ferrymq_broker.server.protocol import AmqpProtocol
from ferrymq_broker.server.read_fairness import Round
from ferrymq_broker.store.appender import AppenderOptions
from ferrymq_broker.store.durable_store import DurableStore, StoreOptions
from ferrymq_broker.values.policy import NodePolicy
from tests.simulation.disk import SimulatedDisk, SimulatedFolder
from tests.simulation.executor import SimulatedExecutor
from tests.simulation.loop import SimulatedLoop
from tests.simulation.member_network import MemberPort
from tests.simulation.network import SimulatedNetwork
from tests.simulation.process import SimulatedProcess, Turn
from tests.simulation.records import SimulatedRecords
from tests.support.known_users import KnownUsers
from tests.support.memory_records import MemoryDisk

EPOCH = 1_700_000_000.0
SEGMENT_BYTES = 64 << 10
# Units of work in one slice: a few links, or some messages.
SLICE_SIZE = 60


class SimulatedClock(Clock):
    """The time of the loop, and a wall clock that is off it by `stepped` seconds more than by the
    epoch; the machine has been suspended for `slept` of these. It outlives the broker."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self.stepped = 0.0
        self.slept = 0.0

    def now(self) -> float:
        return self._loop.time()

    def epoch(self) -> float:
        return EPOCH + self.stepped

    def suspended(self) -> float:
        return self.slept


class SimulatedServer:
    """What a protocol of the broker expects of its server; one life of a broker.

    `failures` are mistakes that were caught: there are to be none.
    """

    def __init__(
        self,
        loop: SimulatedLoop | SimulatedProcess,
        rng: random.Random,
        network: SimulatedNetwork | MemberPort,
        disk: SimulatedDisk,
        kept: MemoryDisk,
        nodes: dict[str, NodePolicy],
        clock: SimulatedClock,
        cluster: str = "",
        appender: AppenderOptions | None = None,
        may_write: Callable[[], bool] | None = None,
    ) -> None:
        self.loop = loop
        self.clock = clock
        self._suspended = clock.suspended()
        self.connections: set[AmqpProtocol] = set()
        self.tables = HostTables()
        self.worker = None
        self.round = Round(lambda call: call())
        self.network = network
        self.disk = disk
        self.dead = False
        # Whether the disk was full, and is not, in this order.
        self.alarms: list[bool] = []
        # Why the store failed.
        self.failure: str | None = None
        self.broker = Broker(self._soon, self._wake_at, clock.epoch())
        self._gate = None if may_write is None else OutputGate(may_write)
        self.broker.output.gate = self._gate
        # Whatever may be done in several passes is.
        self.broker.agenda.slices.size = SLICE_SIZE
        self._timer: asyncio.TimerHandle | Turn | None = None
        self.store = DurableStore(
            SimulatedFolder(disk),
            lambda clean: SimulatedRecords(disk, kept),
            self.broker.agenda.changes,
            StoreOptions(segment_bytes=SEGMENT_BYTES),
            cluster=cluster,
        )
        self.broker.begin_pass(self.clock.now())
        recover(self.broker, self.store)
        self.broker.keep(self.store)
        for address, policy in nodes.items():
            if address not in self.broker.default.nodes:
                self.broker.default.create(address, policy)
        self._executor = SimulatedExecutor(loop, disk, rng)
        self.store.start(self._executor, self._on_stable, self._on_failure, self._on_full, appender)
        self.broker.finish_pass()
        self._authenticator = KnownUsers({}, True, True)
        network.accept = self._accept

    def _accept(self) -> AmqpProtocol:
        protocol = AmqpProtocol(self, True)  # type: ignore[arg-type]
        # Its turns are those of the process.
        protocol._loop = self.loop  # type: ignore[assignment]
        protocol.driver.turns._soon = self.loop.call_soon
        return protocol

    def new_handler(
        self,
        transport: ClientTransport,
        write: Callable[[bytes], object],
        hang_up: Callable[[], object],
        began: float | None = None,
    ) -> ConnectionHandler:
        settings = ConnectionSettings(
            container_id="broker",
            initiator=False,
            idle_time_out=None,
            handshake_timeout=None,
            offered_capabilities=list(OFFERED),
            sasl_mechanisms=self._authenticator.mechanisms(transport),
            sasl_required=False,
        )
        now = self.clock.now()
        return ConnectionHandler(
            self.broker, settings, self._authenticator, transport, write, hang_up, now, 1 << 20, 100
        )

    def connection_gone(self, protocol: AmqpProtocol) -> None:
        self.connections.discard(protocol)

    def connection_settled(self, protocol: AmqpProtocol) -> None:
        """Nobody waits for that."""

    def kill(self, power: bool) -> None:
        """The process is gone, perhaps with the machine."""
        self.dead = True
        if self._timer is not None:
            self._timer.cancel()
        self._executor.stop()
        self.network.stop_broker()
        if power:
            self.disk.lose_power()
        else:
            self.disk.kill()

    def end(self) -> None:
        """The broker is no leader any more, and the process goes on."""
        self.dead = True
        if self._timer is not None:
            self._timer.cancel()
        self.network.stop_broker()
        self.store.close()

    # -- the event loop --------------------------------------------------------------------

    def _soon(self, call: Callable[[], None]) -> None:
        self.loop.call_soon(self._pass, call)

    def _pass(self, call: Callable[[], None]) -> None:
        if not self.dead:
            self.broker.begin_pass(self.clock.now())
            call()

    def _wake_at(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_at(max(due, self.loop.time()), self._on_timer)

    def _on_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if not self.dead:
            self.broker.handle_timeout(self.clock.now())

    def follow_clock(self) -> None:
        """The wall clock may have been set."""
        if not self.dead:
            clock = self.clock
            self.broker.clock.set(clock.epoch(), clock.suspended() - self._suspended)
            self._on_timer()

    def _on_stable(self) -> None:
        if not self.dead:
            self.broker.on_stable(self.clock.now())

    def _on_failure(self, reason: str) -> None:
        self.failure = reason

    def _on_full(self, on: bool) -> None:
        self.alarms.append(on)
        self.set_alarm("disk", on)

    def set_alarm(self, reason: str, on: bool) -> None:
        """Switch an alarm of the broker."""
        self.broker.begin_pass(self.clock.now())
        self.broker.set_alarm(reason, on)
        self.broker.finish_pass()

    def go_on(self) -> None:
        """Write what has waited for the lease."""
        if self._gate is not None:
            self.broker.begin_pass(self.clock.now())
            self._gate.reopen()
            self.broker.finish_pass()
