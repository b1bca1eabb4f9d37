"""A broker in the test's own process, in a thread of its own."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from ferrymq.testing.broker_clock import BrokerClock
from ferrymq.testing.faults import Faults
from ferrymq.testing.queue_contents import QueueContents, QueuedMessage

if TYPE_CHECKING:
    from ferrymq.message import Message
    from ferrymq.testing.local_server import LocalServer
    from ferrymq_broker.addresses.address_space import AddressSpace
    from ferrymq_broker.config.model import Config

T = TypeVar("T")

Entity = str | Mapping[str, Any]
"""A node to make: its name, or its table in the configuration, such as ``{"name": "orders",
"message-ttl": "30s"}``."""

KINDS: Final = ("queue", "topic", "stream", "exchange")
# Seconds of real time for the thread of the broker to do something.
_PATIENCE: Final = 60.0


def tables_of(**nodes: Sequence[Entity]) -> dict[str, list[dict[str, Any]]]:
    """Return the tables of the configuration for some nodes, by ``queues``, ``topics``, ``streams``
    and ``exchanges``."""
    return {
        kind: [{"name": each} if isinstance(each, str) else dict(each) for each in entities]
        for kind in KINDS
        if (entities := nodes.get(f"{kind}s"))
    }


def _merge(config: Mapping[str, Any], nodes: Mapping[str, list[dict[str, Any]]]) -> dict[str, Any]:
    merged = dict(config)
    for kind, tables in nodes.items():
        merged[kind] = [*config.get(kind, ()), *tables]
    return merged


def _need_broker() -> None:
    """Raise ModuleNotFoundError, which says what to install, if the broker's packages are
    missing."""
    try:
        import ferrymq.testing.local_server  # noqa: F401
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("ferrymq"):
            raise
        raise ModuleNotFoundError(
            f"a broker for tests needs {error.name}: pip install 'ferrymq[broker]'",
            name=error.name,
        ) from error


class LocalHost:
    """A virtual host of a `LocalBroker`: it has nodes of its own.

    `url` is for `ferrymq.connect`; other clients use the broker's `address` with `hostname` in
    their open.
    """

    def __init__(self, broker: LocalBroker, name: str) -> None:
        self.broker: LocalBroker = broker
        self.name: str = name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    @property
    def hostname(self) -> str:
        """The hostname in the open of a client, which leads to this virtual host."""
        return f"vhost:{self.name}"

    @property
    def url(self) -> str:
        """The URL for `ferrymq.connect`."""
        return f"{self.broker.address}?hostname={self.hostname}"

    @property
    def clock(self) -> BrokerClock:
        """The clock of the broker, which all of its virtual hosts share."""
        return self.broker.clock

    @property
    def faults(self) -> Faults:
        """The faults of the broker, which all of its virtual hosts share."""
        return self.broker.faults

    def queue(self, address: str) -> QueueContents:
        """Return what is in a queue. The queue need not exist yet; reading then raises
        LookupError."""
        return QueueContents(address, lambda: self.broker.peek(self.name, address))

    def put(self, address: str, *messages: Message | bytes | str) -> None:
        """Put messages into a node, without a client. A `bytes` or `str` is the body of one.

        Raises ValueError if the node refuses a message.
        """
        self.broker.publish(self.name, address, messages)


class LocalBroker:
    """A broker in a thread of this process, on a free port of 127.0.0.1, without a store.

        with LocalBroker(queues=["orders"]) as broker:
            with ferrymq.blocking.connect(broker.url) as connection:
                ...

    It serves blocking code and asyncio alike, because its event loop is its own. `queues`,
    `topics`, `streams` and `exchanges` are nodes to make: names, or tables as in the configuration.
    `config` is the rest of the configuration, as a mapping of the tables in its file. Without an
    `idle-time-out` in its ``limits``, no connection is dropped because the clock advances.

    Raises ModuleNotFoundError without ``ferrymq[broker]``, and ValueError for a wrong
    configuration.
    """

    def __init__(
        self,
        *,
        queues: Sequence[Entity] = (),
        topics: Sequence[Entity] = (),
        streams: Sequence[Entity] = (),
        exchanges: Sequence[Entity] = (),
        config: Mapping[str, Any] | None = None,
        port: int = 0,
    ) -> None:
        _need_broker()
        from ferrymq_broker.config.model import Config

        nodes = tables_of(queues=queues, topics=topics, streams=streams, exchanges=exchanges)
        settings = _merge(config or {}, nodes)
        settings.setdefault("listener", [{"url": f"amqp://127.0.0.1:{port}"}])
        limits = dict(settings.get("limits", {}))
        if "idle-time-out" not in limits:
            limits.setdefault("idle_time_out", 0)
        settings["limits"] = limits
        self._config: Config = Config.model_validate(settings)
        self._server: LocalServer | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stop: asyncio.Event | None = None
        self._failure: BaseException | None = None
        self._numbers = itertools.count(1)
        self.faults: Faults = Faults(self.run, self._set_alarm)
        self.clock: BrokerClock = BrokerClock(self._advance, self._read_clock)

    def __repr__(self) -> str:
        where = "stopped" if self._server is None else self.address
        return f"<LocalBroker {where}>"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def start(self) -> None:
        """Start the broker, and return when it listens. Raises `OSError` if it cannot."""
        if self._thread is not None:
            raise RuntimeError("the broker has been started already")
        started = threading.Event()
        self._thread = threading.Thread(
            target=self._serve, args=(started,), name="ferrymq-testing", daemon=True
        )
        self._thread.start()
        started.wait()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            self._thread.join()
            raise failure

    def close(self) -> None:
        """Drop all connections and stop the broker. Safe to call twice."""
        thread, loop, stop = self._thread, self._loop, self._stop
        if thread is None or loop is None or stop is None or not thread.is_alive():
            return
        loop.call_soon_threadsafe(stop.set)
        thread.join(_PATIENCE)
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    # -- addresses -----------------------------------------------------------------------

    @property
    def port(self) -> int:
        """The port."""
        return self._running().port

    @property
    def address(self) -> str:
        """The URL without a virtual host, ``amqp://127.0.0.1:PORT``, for any client."""
        return f"amqp://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """The URL of the default virtual host, for any client."""
        return self.address

    @property
    def default_host(self) -> LocalHost:
        """The default virtual host, that of clients that name none."""
        return LocalHost(self, self._running().broker.default.name)

    # -- queues --------------------------------------------------------------------------

    def queue(self, address: str) -> QueueContents:
        """Return what is in a queue of the default virtual host. See `LocalHost.queue`."""
        return self.default_host.queue(address)

    def put(self, address: str, *messages: Message | bytes | str) -> None:
        """Put messages into a node of the default virtual host. See `LocalHost.put`."""
        self.default_host.put(address, *messages)

    def peek(self, host: str, address: str) -> list[QueuedMessage]:
        """Return the messages of a queue of a virtual host. Raises `LookupError` if there is no
        such queue, and `CodecError` for messages that are none."""
        from ferrymq.message import Message

        peeked = self.run(lambda: self._peek(host, address))
        return [
            QueuedMessage(Message.decode(payload), state, sequence, failures)
            for payload, state, sequence, failures in peeked
        ]

    def publish(self, host: str, address: str, messages: Sequence[Message | bytes | str]) -> None:
        """Put messages into a node of a virtual host. See `LocalHost.put`."""
        from ferrymq.message import Message

        encoded = [
            (each if isinstance(each, Message) else Message(body=each)).encode()
            for each in messages
        ]
        self.run(lambda: self._publish(host, address, encoded))

    # -- virtual hosts -------------------------------------------------------------------

    def add_host(
        self,
        *,
        queues: Sequence[Entity] = (),
        topics: Sequence[Entity] = (),
        streams: Sequence[Entity] = (),
        exchanges: Sequence[Entity] = (),
        name: str = "",
    ) -> LocalHost:
        """Add a virtual host with these nodes. Without a `name` it gets a new one.

        Raises ValueError if the name is taken, or for wrong nodes.
        """
        nodes = tables_of(queues=queues, topics=topics, streams=streams, exchanges=exchanges)
        chosen = name or f"test-{next(self._numbers)}"
        self.run(lambda: self._add_host(chosen, nodes))
        return LocalHost(self, chosen)

    def remove_host(self, host: LocalHost) -> None:
        """Drop the connections to a virtual host, and remove it with its nodes and messages."""
        self.run(lambda: self._remove_host(host.name))

    # -- the thread ----------------------------------------------------------------------

    def run(self, call: Callable[[], T]) -> T:
        """Run a function in the broker's thread, in a pass of its own, and return its result."""

        async def run() -> T:
            server = self._running()
            server.broker.begin_pass(server.still.seconds)
            try:
                return call()
            finally:
                server.broker.finish_pass()

        return self._await(run)

    def _await(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        self._running()
        loop = self._loop
        assert loop is not None
        if threading.current_thread() is self._thread:
            raise RuntimeError("this would wait for the thread that it runs in")
        return asyncio.run_coroutine_threadsafe(work(), loop).result(_PATIENCE)

    def _running(self) -> LocalServer:
        server = self._server
        if server is None:
            raise RuntimeError("the broker does not run: use it in a with statement")
        return server

    def _serve(self, started: threading.Event) -> None:
        """Run the broker until it is stopped: the whole life of the thread."""
        try:
            asyncio.run(self._live(started))
        except BaseException as error:
            self._failure = error
        finally:
            self._server = None
            started.set()

    async def _live(self, started: threading.Event) -> None:
        from ferrymq.testing.local_server import LocalServer

        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        server = LocalServer(self._config, self.faults)
        async with server:
            self._server = server
            started.set()
            await self._stop.wait()

    # -- in the thread -------------------------------------------------------------------

    def _advance(self, seconds: float) -> None:
        server = self._running()
        self._await(lambda: server.advance(seconds))

    def _read_clock(self) -> float:
        still = self._running().still
        return still.now() + still.epoch()

    def _set_alarm(self, alarm: str, on: bool) -> None:
        self._running().broker.set_alarm(alarm, on)

    def _space(self, host: str) -> AddressSpace:
        space = self._running().broker.spaces.get(host)
        if space is None:
            raise LookupError(f"there is no virtual host {host!r}")
        return space

    def _peek(self, host: str, address: str) -> list[tuple[bytes, str, int, int]]:
        from mypy_extensions import i64

        from ferrymq_broker.nodes.entry import ACQUIRED
        from ferrymq_broker.nodes.queues.queue import Queue

        node = self._space(host).find(address)
        if not isinstance(node, Queue):
            found = "no node" if node is None else f"a {node.kind}"
            raise LookupError(f"there is no queue {address!r}, but {found}")
        found_messages: list[tuple[bytes, str, int, int]] = []
        for entry in node.peek(2**31 - 1):
            message = node.entries.read_message(entry)
            if message is not None:
                state = "acquired" if entry.state == ACQUIRED else "available"
                failures = int(entry.failures)
                payload = (
                    message.redelivery(i64(entry.failures)) if entry.attempts else message.payload
                )
                found_messages.append((payload, state, int(entry.sequence), failures))
        found_messages += [
            (each.message.payload, "scheduled", int(each.sequence), 0)
            for each in node.lifecycle.list_scheduled()
        ]
        return found_messages

    def _publish(self, host: str, address: str, messages: Sequence[bytes]) -> None:
        from ferrymq_broker.nodes.message import admit

        node = self._space(host).target(address)
        for payload in messages:
            refusal = node.publish(admit(payload, 0))
            if refusal is not None:
                raise ValueError(f"{address!r} refused a message: {refusal.description}")

    def _add_host(self, name: str, tables: Mapping[str, Any]) -> None:
        from ferrymq_broker.config.apply.declare import fill_space
        from ferrymq_broker.config.declarations import VirtualHost
        from ferrymq_broker.management.setup import install

        host = VirtualHost.model_validate({"name": name, **tables})
        nodes = self._config.nodes_of(host)
        server = self._running()
        space = server.broker.add_space(host.name, host.all_hostnames(), nodes.limit)
        fill_space(self._config, host, nodes, space)
        server.managers[space.name] = install(space, server.broker)

    def _remove_host(self, name: str) -> None:
        server = self._running()
        broker = server.broker
        space = self._space(name)
        if space is broker.default:
            raise ValueError("the default virtual host stays as long as the broker")
        for connection in list(server.connections):
            if connection.handler.client.space is space:
                connection.abort()
        del broker.spaces[name]
        for hostname, owner in list(broker.hosts.items()):
            if owner is space:
                del broker.hosts[hostname]
        # Links end in the next turn of the event loop; then nothing uses the nodes any more.
        asyncio.get_running_loop().call_later(0.01, space.clear)
