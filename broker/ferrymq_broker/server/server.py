"""A broker with its listeners, inside a running event loop.

One module because it has the order in which everything starts and ends.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self
from uuid import uuid4

from ferrymq_broker.broker import Broker
from ferrymq_broker.capture.options import CaptureOptions
from ferrymq_broker.capture.release import release_all
from ferrymq_broker.clock import Clock
from ferrymq_broker.config.apply.declare import declare, make_hosts
from ferrymq_broker.config.capture import Capture
from ferrymq_broker.config.errors import ConfigError
from ferrymq_broker.config.listeners import Listener
from ferrymq_broker.config.model import Config
from ferrymq_broker.config.url import ListenAddress
from ferrymq_broker.connections.authentication import Authenticator, ClientTransport
from ferrymq_broker.connections.client_handler import ClientHandler
from ferrymq_broker.connections.output_turns import OutputGate
from ferrymq_broker.event_log import log
from ferrymq_broker.history.sampler import Sampler
from ferrymq_broker.management.live import LiveKeepers
from ferrymq_broker.management.manager import Manager
from ferrymq_broker.management.setup import install as install_management
from ferrymq_broker.management.traces import ConnectionTraces
from ferrymq_broker.monitoring.readiness import Readiness
from ferrymq_broker.monitoring.store_stats import StoreStats
from ferrymq_broker.security.authenticators import Authenticators
from ferrymq_broker.security.config_checks import warnings_of_strangers
from ferrymq_broker.security.tls_reload import TlsRegistry
from ferrymq_broker.security.token_setup import request_tokens, take_tokens
from ferrymq_broker.server.acceptor import bind
from ferrymq_broker.server.admission import Admission
from ferrymq_broker.server.adopted_protocol import AdoptedProtocol
from ferrymq_broker.server.cluster_role import BROKER_ID, ClusterRole
from ferrymq_broker.server.connection_limits import ConnectionLimits
from ferrymq_broker.server.dismissal import dismiss
from ferrymq_broker.server.handler_runs import HandlerRuns
from ferrymq_broker.server.host_tables import HostTables
from ferrymq_broker.server.http_handlers import HttpHandlers
from ferrymq_broker.server.kick_users import UserKick
from ferrymq_broker.server.listeners import Listeners
from ferrymq_broker.server.live_config import LiveConfig, Reread
from ferrymq_broker.server.managed_rules import ManagedRules
from ferrymq_broker.server.managed_users import ManagedUsers
from ferrymq_broker.server.management_pages import MANAGEMENT_PAGES
from ferrymq_broker.server.personalities import find_personality, take_personality
from ferrymq_broker.server.protocol import AmqpProtocol
from ferrymq_broker.server.read_fairness import Round
from ferrymq_broker.server.startup_progress import OnProgress, readiness_of
from ferrymq_broker.server.tapped_connections import TappedConnections
from ferrymq_broker.server.worker_answers import SharedConfig, WorkerAnswers
from ferrymq_broker.server.worker_backups import SharedStorage
from ferrymq_broker.server.workers.passed_connection import PassedConnection
from ferrymq_broker.server.workers.relay import ClientRelay
from ferrymq_broker.store.errors import StoreError
from ferrymq_types.transport import Error

if TYPE_CHECKING:
    from ferrymq_broker.capture.service import CaptureService
    from ferrymq_broker.monitoring.http import MonitoringServer
    from ferrymq_broker.monitoring.metrics_registry import MetricsRegistry
    from ferrymq_broker.security.tls_reload import TlsFiles
    from ferrymq_broker.server.storage import Storage
    from ferrymq_broker.server.websocket_limits import WebSocketLimits
    from ferrymq_broker.server.workers.worker import Worker
    from ferrymq_broker.store.durable_store import DurableStore
    from ferrymq_broker.telemetry.service import Telemetry

# Seconds between two comparisons of the wall clock with the monotonic clock.
CLOCK_PERIOD = 1.0
# Seconds between two times at which the broker frees memory and looks for changed files.
TIDY_PERIOD = 5.0
# A change of the wall clock by at least so many seconds is logged.
_WORTH_TELLING = 1.0


class BrokerServer:
    """A broker with its listeners: ``async with BrokerServer(config) as server: ...``.

    `start` raises `OSError` if a listener cannot listen on its address, `ConfigError` if a
    certificate or a key cannot be used, and `StoreError` if the store cannot be used.

    If the store fails while the broker runs, nothing more is written to any client, all connections
    are dropped, `on_failure` is called once with the error, in the event loop, and `close` raises
    the error. `on_progress` is called with the progress of the start. `reread` reads the
    configuration again for `reload`; None if it does not change. `role` is the part of the server
    in a cluster; None without replication. `worker` is set if this is one of several processes of a
    broker.
    """

    def __init__(
        self,
        config: Config | None = None,
        clock: Clock | None = None,
        *,
        on_failure: Callable[[StoreError], object] | None = None,
        on_progress: OnProgress | None = None,
        reread: Reread | None = None,
        role: ClusterRole | None = None,
        worker: Worker | None = None,
    ) -> None:
        self._role = role
        self.config: Config = Config.defaults() if config is None else config
        if self.config.workers > 1 and worker is None:
            raise ConfigError("workers: a broker inside another program has only one process")
        self.worker: Worker | None = worker
        self.clock: Clock = Clock() if clock is None else clock
        # What clients of other brokers expect, in addition to the broker's own.
        self.tables: HostTables = HostTables()
        # The HTTP listener for monitoring; None if the configuration has no address for it.
        self.monitoring: MonitoringServer | None = None
        self.connections: set[AmqpProtocol] = set()
        # Clients with TLS whose connections other workers have.
        self.relays: dict[ClientRelay, AmqpProtocol] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        # The round that the turns of all connections share.
        self.round: Round = Round()
        self._empty = asyncio.Event()
        # Connections whose clients have messages to settle before the broker ends.
        self._unsettled: set[AmqpProtocol] = set()
        self._settled = asyncio.Event()
        self._closing = False
        # The failure of the store, if it has failed.
        self.failure: StoreError | None = None
        self._on_failure = on_failure
        self._on_progress = on_progress
        self._storage: Storage | None = None
        # The capture of streams to files; None if the configuration has no directory for it.
        self.capture: CaptureService | None = None
        # During recovery, the functions to call after it; else None.
        self._held_back: list[Callable[[], None]] | None = None
        self._readiness = Readiness(False, "the broker is starting")
        self._timer: asyncio.TimerHandle | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._tidying: asyncio.TimerHandle | None = None
        # The seconds for which the machine had been suspended when the broker began.
        self._suspended = self.clock.suspended()
        # What answers HTTP requests on listeners that take HTTP beside AMQP.
        self.http_handlers: HttpHandlers = HttpHandlers()
        self._listeners = Listeners(self)
        # What answers management requests, by virtual host.
        self.managers: dict[str, Manager] = {}
        # Functions that read files again, for `reload`.
        self.on_reload: list[Callable[[], object]] = []
        self._authenticators: Authenticators | None = None
        self.live: LiveConfig = LiveConfig(self, reread)
        # The answers to other workers; None without workers.
        self._answers: WorkerAnswers | None = None
        # The metrics; None if nobody reads them.
        self._metrics: MetricsRegistry | None = None
        # The export of spans and metrics; None unless the configuration wants it.
        self._telemetry: Telemetry | None = None

    @property
    def addresses(self) -> list[ListenAddress]:
        """The actual addresses of the listeners after the start, in the order of the
        configuration."""
        return self._listeners.addresses

    @property
    def port(self) -> int:
        """The port of the first listener."""
        return self.addresses[0].port

    @property
    def started_broker(self) -> Broker | None:
        """The broker, which is in use from the end of the start until the close; else None."""
        return self.broker if self._readiness.ready else None

    @property
    def store(self) -> DurableStore | None:
        """The store; None without one."""
        return None if self._storage is None else self._storage.store

    @property
    def monitoring_url(self) -> str | None:
        """The URL of the monitoring listener; None without one."""
        return None if self.monitoring is None else self.monitoring.url

    @property
    def url(self) -> str:
        """The URL of the first listener."""
        return self.addresses[0].url

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Recover the store, make the configured nodes, and listen."""
        config = self.config
        self.broker: Broker = Broker(
            self._soon, self._wake_at, self.clock.epoch(), max_nodes=config.nodes.limit
        )
        if self._role is not None:
            self.broker.refusal = self._role.refusal
            if self._role.may_write is not None:
                self.broker.output.gate = OutputGate(self._role.may_write)
        self.handler_runs: HandlerRuns = HandlerRuns(
            self.broker,
            self.clock.now,
            self.http_handlers,
            None if self.worker is None else self.worker.peers,
        )
        if self.worker is not None:
            self._answers = WorkerAnswers(self, self.worker.peers)
        shared_changed = None if self._answers is None else self._answers.files_changed
        try:
            self.tls: TlsRegistry = TlsRegistry(config)
            self.on_reload.append(lambda: self.tls.refresh(force=True))
            if config.http.url is not None:
                # Imported only when needed, because importing an HTTP server takes a while.
                from ferrymq_broker.server.monitoring_setup import make_monitoring

                self.monitoring = make_monitoring(
                    config,
                    self.broker,
                    lambda: self.readiness,
                    lambda transport: self._authenticators and self.admission.authenticators,
                    self.tls.monitoring,
                    self,
                    self._answers,
                )
                await self.monitoring.start()
            make_hosts(config, self.broker)
            if self.worker is not None:
                self.worker.mark_hosts(self.broker)
            self.rules: ManagedRules = ManagedRules(config, self.broker, shared_changed)
            if config.personality.name:
                package = find_personality(config.personality.name)
                self.tables = self.tables.joined(package.tables)
                config = self.config = self.completed(config)
                take_personality(package, self.broker, config.personality)
            if config.http.management:
                self.tables = self.tables.joined(MANAGEMENT_PAGES)
            self.tables.add_words(self.broker)
            # Set the time for recovery and declarations.
            self.broker.begin_pass(self.clock.now())
            if config.store.path is not None:
                self._storage = await self._recover(config.store.path)
                if self.worker is not None:
                    self.worker.check_stored(self.broker)
                self.broker.begin_pass(self.clock.now())
            # Before the declarations: a personality adds a node for tokens if there is none.
            verifier = take_tokens(
                config.security, self.broker, self.clock, self.tables.signature_types
            )
            declare(config, self.broker)
            self.users: ManagedUsers = ManagedUsers(
                lambda: self.config, lambda: self.admission.authenticators, shared_changed
            )
            live = self.live if self.worker is None else SharedConfig(self.live, self.worker.peers)
            keepers = LiveKeepers(live, self.users, self.rules)
            storage: Storage | SharedStorage | None = self._storage
            if self._storage is not None and self.worker is not None:
                storage = SharedStorage(
                    self._storage, self._storage.figures.path, self.worker.peers
                )
            traces = ConnectionTraces(TappedConnections(self.connections), time.time)
            for space in self.broker.served_spaces():
                # Only the default virtual host manages the store, because it concerns all tenants.
                is_default = space is self.broker.default
                keeper = storage if is_default else None
                cluster = self._role.keeper if is_default and self._role is not None else None
                self.managers[space.name] = install_management(
                    space,
                    self.broker,
                    keeper,
                    self.tables.dialects,
                    traces,
                    keepers,
                    cluster,
                    self._answers,
                )
            if config.history.enabled:
                self.history: Sampler = Sampler(self.broker, config.history.max_bytes)
            self.capture = _make_capture(config.capture, self.broker, self.clock)
            if self.monitoring is not None:
                self.monitoring.watch(
                    None if self._storage is None else self._storage.figures, self.capture
                )
                self._metrics = self.monitoring.metrics
                if self._role is not None:
                    from ferrymq_broker.monitoring.replication_metrics import ReplicationCollector

                    self.monitoring.metrics.add(ReplicationCollector(self._role.keeper.describe))
            if self.worker is not None and self.worker.is_monitored:
                self.worker.show_figures(self.broker, self._watched_metrics(), self.capture)
            if config.opentelemetry.is_on() and not config.opentelemetry.is_disabled():
                self._begin_telemetry(config)
            if self._storage is not None:
                self._storage.start()
            if self.capture is None:
                release_all(self.broker)
            else:
                self.capture.start()
            self.broker.finish_pass()
            self.user_kick: UserKick = UserKick(lambda: self.connections)
            limits = config.limits
            self.connection_limits: ConnectionLimits = ConnectionLimits(
                limits.connections,
                limits.connections_per_address,
                self.broker.counters,
                *(() if self.worker is None else (self.worker.connections, self.worker.number)),
            )
            self.connection_limits.begin()
            if self._role is None:
                properties: dict[str, object] = {BROKER_ID: self._broker_id()}
            else:
                properties = self._role.open_properties()
            self.admission: Admission = Admission(
                config, self.broker, self.user_kick, verifier, properties
            )
            self._authenticators = self.admission.authenticators
            self.on_reload.append(lambda: self.admission.authenticators.refresh(force=True))
            for warning in warnings_of_strangers(config):
                log.warning(warning)
            self.tables.mount(
                self.broker,
                self.http_handlers,
                lambda space: request_tokens(self.broker, space, verifier),
                lambda transport: self.admission.authenticators.is_required(transport),
                lambda: self.admission.authenticators.users(),
                lambda: self.addresses,
                self.managers,
                keepers,
            )
            await self._listeners.start(config.listener)
            if self.worker is not None:
                self.worker.begin(self._adopt, self.connection_limits.lose)
            if self.failure is not None:
                raise self.failure
            self._watch_clock()
            self._tidy()
            self._readiness = Readiness(True, "")
        except BaseException:
            await self.close()
            raise

    def _broker_id(self) -> str:
        """Return the id of this broker's data: that of its store, or without a store a new one."""
        return str(uuid4()) if self._storage is None else self._storage.store.id

    def _begin_telemetry(self, config: Config) -> None:
        """Begin to record and export spans and metrics."""
        # An extra, and imported only when needed.
        from ferrymq_broker.telemetry.service import Telemetry

        instance = config.container_id
        if self.worker is not None:
            instance += f"/{self.worker.number}"
        self._telemetry = Telemetry(config.opentelemetry, self.broker, instance)
        self._telemetry.start(self._watched_metrics())

    def _watched_metrics(self) -> MetricsRegistry:
        """Return the metrics of this process, which are counted from now on."""
        if self._metrics is None:
            # Imported only when needed, because importing it takes a while.
            from ferrymq_broker.monitoring.metrics_registry import MetricsRegistry

            self._metrics = MetricsRegistry(self.broker)
            figures = None if self._storage is None else self._storage.figures
            self._metrics.watch(figures, self.capture)
        return self._metrics

    async def _recover(self, path: Path) -> Storage:
        """Open the store in a thread, and recover the broker's nodes and messages."""
        # Imported only when needed, because importing the store takes a while.
        from ferrymq_broker.server.storage import Storage, StoreOpening

        begun = self.clock.now()
        self._held_back = []
        opening = StoreOpening(
            path,
            self.config.store,
            self.broker,
            self._progress,
            self.config.page_out_bytes(),
            "" if self._role is None else self._role.cluster,
        )
        store = await opening.store()
        held_back, self._held_back = self._held_back, None
        for call in held_back:
            self._soon(call)
        log.info("recovered", store=str(path), seconds=round(self.clock.now() - begun, 3))
        figures = StoreStats(path)
        appender = None if self._role is None else self._role.appender
        return Storage(store, figures, self.broker, self.clock.now, self._store_failed, appender)

    def cluster_reason(self) -> str:
        """Return why the cluster lets the server serve nobody; empty if it does not."""
        return "" if self._role is None else self._role.reason()

    @property
    def readiness(self) -> Readiness:
        """The readiness for connections."""
        reason = self.cluster_reason() if self._readiness.ready else ""
        return Readiness(False, reason) if reason else self._readiness

    def _progress(self, what: str, done: int, total: int) -> None:
        """Report the progress of the recovery."""
        self._readiness = readiness_of(what, done, total)
        if self._on_progress is not None:
            self._on_progress(what, done, total)

    def _store_failed(self, error: StoreError) -> None:
        """Drop all connections after a failure of the store, without writing to them."""
        self.failure = error
        self._readiness = Readiness(False, str(error))
        self._listeners.close()
        for connection in list(self.connections):
            connection.abort()
        for relay in list(self.relays):
            relay.abort()
        if self.capture is not None:
            self.capture.kill()
        # `close` must not wait for clients.
        self._settled.set()
        if self._on_failure is not None:
            self._on_failure(error)

    def _soon(self, call: Callable[[], None]) -> None:
        """Call a function in a pass of its own, after the current one."""
        if self._held_back is not None:
            # Another thread is recovering the broker.
            self._held_back.append(call)
            return
        asyncio.get_running_loop().call_soon(self._pass, call)

    def _pass(self, call: Callable[[], None]) -> None:
        self.broker.begin_pass(self.clock.now())
        call()

    def _watch_clock(self) -> None:
        """Look whether the wall clock was set or the machine was suspended, and follow."""
        clock = self.clock
        stepped, slept = self.broker.clock.set(clock.epoch(), clock.suspended() - self._suspended)
        if abs(stepped) >= _WORTH_TELLING:
            log.warning("the wall clock was set", seconds=round(stepped, 3))
        if slept >= _WORTH_TELLING:
            log.warning("the machine was suspended", seconds=round(slept, 3))
        self._on_timer()
        self._watch = asyncio.get_running_loop().call_later(CLOCK_PERIOD, self._watch_clock)

    def _tidy(self) -> None:
        self.broker.begin_pass(self.clock.now())
        try:
            self.broker.tidy()
            self.tls.refresh()
            self.admission.authenticators.refresh()
        except Exception:
            log.exception("internal error")
        self._tidying = asyncio.get_running_loop().call_later(TIDY_PERIOD, self._tidy)

    def _wake_at(self, due: float) -> None:
        """Set the timer for the first of the broker's timers."""
        if self._timer is not None:
            self._timer.cancel()
        delay = max(0.0, due - self.clock.now())
        self._timer = asyncio.get_running_loop().call_later(delay, self._on_timer)

    def _on_timer(self) -> None:
        """Run the broker's timers that are due."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        try:
            self.broker.handle_timeout(self.clock.now())
        except Exception:
            # No single connection caused the exception, so all go on.
            log.exception("internal error")
            self.broker.finish_pass()

    async def listen(self, listener: Listener, backlog: int) -> list[socket.socket]:
        """Return the sockets of a listener. Raises `OSError` if it cannot listen on its address."""
        if self.worker is not None:
            return self.worker.sockets_of(self.config.listener, listener)
        return await bind(listener.address.host, listener.address.port, backlog)

    def new_protocol(
        self, loopback: bool, tls: TlsFiles | None = None, began: float | None = None
    ) -> AmqpProtocol:
        """Return a protocol for a new connection over TCP; with `tls` it begins with TLS."""
        return AmqpProtocol(self, loopback, tls, began)

    def new_web_protocol(self, loopback: bool, websocket_limits: WebSocketLimits) -> AmqpProtocol:
        """Return a protocol for a new connection inside a WebSocket."""
        # Only servers with such a listener need the packages for HTTP.
        from ferrymq_broker.server.http_service import WebProtocol

        return WebProtocol(self, loopback, websocket_limits)

    def new_handler(
        self,
        transport: ClientTransport,
        write: Callable[[bytes], object],
        hang_up: Callable[[], object],
        began: float | None = None,
        authenticator: Authenticator | None = None,
    ) -> ClientHandler:
        """Return a handler for a new connection, which was accepted at the time `began`; None:
        now. Without an `authenticator` it has the one for this client."""
        now = self.clock.now() if began is None else began
        admission = self.admission
        decides = authenticator or admission.authenticator_for(transport)
        return admission.new_handler(transport, write, hang_up, now, decides)

    def connection_gone(self, protocol: AmqpProtocol) -> None:
        """Handle that a transport has ended."""
        self.connections.discard(protocol)
        self.connection_limits.leave(protocol)
        self.connection_settled(protocol)
        if not self.connections:
            self._empty.set()

    def connection_passed(self, protocol: AmqpProtocol, relayed: bool) -> None:
        """Handle that another worker has a connection now, `relayed` or with its socket."""
        self.connection_limits.pass_on(protocol, relayed)
        self.connections.discard(protocol)
        self.connection_settled(protocol)
        if not self.connections:
            self._empty.set()

    def relay(
        self,
        client: asyncio.Transport,
        worker: socket.socket,
        early: bytes,
        protocol: AmqpProtocol,
    ) -> None:
        """Relay the bytes of a client to the socket of another worker, which has its connection.
        `early` are bytes that were read before."""
        relay = ClientRelay(client, early, self._relay_ended)
        self.relays[relay] = protocol
        task = asyncio.get_running_loop().create_task(relay.start(worker))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _relay_ended(self, relay: ClientRelay) -> None:
        protocol = self.relays.pop(relay)
        self.connection_limits.leave(protocol)
        protocol.relay_ended()
        if not self.relays:
            self._empty.set()

    def _adopt(self, passed: PassedConnection, client: socket.socket) -> None:
        """Serve a connection that another worker has passed to this one."""
        protocol = AdoptedProtocol(self, passed)
        if not self.connection_limits.adopt(protocol, passed.host):
            client.close()
            return
        if self._closing:
            self.connection_limits.leave(protocol)
            client.close()
            return
        client.setblocking(False)
        task = asyncio.get_running_loop().create_task(self._connect(protocol, client))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, protocol: AdoptedProtocol, client: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: protocol, client)
        except OSError:
            self.connection_limits.leave(protocol)
            client.close()

    def connection_settled(self, protocol: AmqpProtocol) -> None:
        """Handle that a client has settled all messages, or is gone, so that `close` need not wait
        for it."""
        self._unsettled.discard(protocol)
        if not self._unsettled:
            self._settled.set()

    def reload(self) -> None:
        """Read the configuration again, and files that it names, such as certificates, in a pass
        of its own. What is wrong is logged, and changes nothing."""
        self.broker.begin_pass(self.clock.now())
        try:
            self.live.reload()
        except ConfigError:
            # It has been logged.
            pass
        except Exception:
            log.exception("internal error")
        finally:
            self.broker.finish_pass()

    def completed(self, config: Config) -> Config:
        """Return a configuration with what the personality adds to it."""
        return _with_frames_of(config, self.tables)

    def hurry(self) -> None:
        """Make `close` wait no longer for clients to settle messages, or for capture."""
        self._settled.set()
        if self.capture is not None:
            self.capture.hurry()

    # -- the lease -----------------------------------------------------------------------

    def set_alarm(self, reason: str, on: bool) -> None:
        """Switch an alarm of the broker, in a pass of its own."""
        self.broker.begin_pass(self.clock.now())
        self.broker.set_alarm(reason, on)
        self.broker.finish_pass()

    def go_on(self) -> None:
        """Write what has waited for the lease, in a pass of its own."""
        gate = self.broker.output.gate
        if gate is not None:
            self.broker.begin_pass(self.clock.now())
            gate.reopen()
            self.broker.finish_pass()

    async def finish_writing(self, seconds: float) -> None:
        """Read nothing more from clients, and wait until all changes are stored, for so many
        seconds at most."""
        for connection in self.connections:
            connection.hold()
        self.broker.finish_work()
        if self._storage is not None:
            await self._storage.wait_for_all(seconds)

    async def close(self) -> None:
        """Stop the broker in good order. Safe to call twice.

        1. Accept no more connections.
        2. Let clients settle their messages, for at most `drain-timeout`.
        3. Close every connection with ``amqp:connection:forced`` and wait for the clients' answers,
        for at most `close-timeout`.
        4. Close the files of capture, for at most `drain-timeout`.
        5. Write and apply all changes of the store.

        Raises `StoreError` if the store has failed, or fails now.
        """
        await self._end(None)

    async def dismiss(self, farewell: Error) -> None:
        """Stop, because the broker is not what it was in its cluster any more: connections are
        closed with this error, at once, and all changes that are not stored are thrown away.

        Raises `StoreError` if the store has failed, or fails now.
        """
        await self._end(farewell)

    async def _end(self, farewell: Error | None) -> None:
        if self._closing:
            return
        self._closing = True
        if self.failure is None:
            self._readiness = Readiness(False, "the broker is shutting down")
        self._listeners.close()
        if farewell is not None:
            await dismiss(self.connections, farewell, self._when_empty)
            if self.capture is not None:
                self.capture.kill()
        elif (self.connections or self.relays) and self.failure is None:
            await self._drain()
            await self._close_connections()
        await self._listeners.wait_closed()
        if self.worker is not None:
            self.worker.peers.close()
        if self.capture is not None and farewell is None:
            await self.capture.close(self.config.shutdown.drain_timeout)
        for timer in (self._timer, self._watch, self._tidying):
            if timer is not None:
                timer.cancel()
        if self._authenticators is not None:
            self.admission.authenticators.close()
            self.users.close()
        if self.failure is None and farewell is None:
            self.broker.finish_work()
            if self._storage is not None and self._role is not None:
                await self._storage.wait_for_all(self.config.shutdown.drain_timeout)
        try:
            if self._storage is not None:
                self._storage.close(farewell is not None)
        finally:
            if self._telemetry is not None:
                await self._telemetry.close()
            if self.monitoring is not None:
                await self.monitoring.close()
            self.broker.clear()
        if self.failure is not None:
            raise self.failure

    def _when_empty(self) -> asyncio.Event:
        """Return an event that is set when the last connection has ended."""
        self._empty.clear()
        return self._empty

    async def _drain(self) -> None:
        """Send no messages, give no credit, and wait until clients have settled their messages."""
        self._unsettled = {one for one in self.connections if not one.quiesce()}
        timeout = self.config.shutdown.drain_timeout
        if not self._unsettled or timeout == 0:
            return
        log.info("waiting for outcomes", connections=len(self._unsettled), seconds=timeout)
        self._settled.clear()
        try:
            async with asyncio.timeout(timeout):
                await self._settled.wait()
        except TimeoutError:
            log.warning("messages go back unsettled", connections=len(self._unsettled))

    async def _close_connections(self) -> None:
        log.info("closing connections", connections=len(self.connections) + len(self.relays))
        error = Error(condition="amqp:connection:forced", description="the broker is shutting down")
        for connection in list(self.connections):
            connection.close(error)
        try:
            async with asyncio.timeout(self.config.limits.close_timeout + 1.0):
                while self.connections or self.relays:
                    await self._when_empty().wait()
        except TimeoutError:
            for connection in list(self.connections):
                connection.abort()
            for relay in list(self.relays):
                relay.abort()


def _make_capture(settings: Capture, broker: Broker, clock: Clock) -> CaptureService | None:
    """Make the capture service of a broker, not yet started; None if no directory is configured."""
    directory = settings.directory
    if directory is None:
        return None
    # Imported only when needed, because importing capture takes a while.
    from ferrymq_broker.capture.service import CaptureService

    options = CaptureOptions(
        str(Path(directory).absolute()),
        settings.max_records,
        settings.max_bytes,
        settings.max_age,
        settings.raw,
    )
    return CaptureService(broker, options, clock.now)


def _with_frames_of(config: Config, tables: HostTables) -> Config:
    """Return the configuration with the max-frame-size of the tables, unless it has its own."""
    limits = config.limits
    if tables.max_frame_size == 0 or "max_frame_size" in limits.model_fields_set:
        return config
    limits = limits.model_copy(update={"max_frame_size": tables.max_frame_size})
    return config.model_copy(update={"limits": limits})
