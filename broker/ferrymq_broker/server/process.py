"""The broker as a process: event loop, signals, garbage collector."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ferrymq.heap import Heap, process_heap
from ferrymq_broker import audit
from ferrymq_broker.broker import Broker
from ferrymq_broker.config.model import Config
from ferrymq_broker.event_log import log
from ferrymq_broker.server.connection_limits import raise_descriptor_limit
from ferrymq_broker.server.housekeeping import (
    PERIOD,
    SHRINK_EVERY,
    Housekeeping,
    find_trim,
    find_unmap,
    return_memory,
    tune_garbage_collector,
)
from ferrymq_broker.server.live_config import Reread
from ferrymq_broker.server.logs import reopen_logs
from ferrymq_broker.server.server import BrokerServer
from ferrymq_broker.server.startup_progress import OnProgress
from ferrymq_broker.store.errors import StoreError

if TYPE_CHECKING:
    from ferrymq_broker.server.replicated_server import ReplicatedServer
    from ferrymq_broker.server.workers.worker import Worker

# The exit status after a failure of the store: EX_SOFTWARE in sysexits.h.
STORE_FAILED: Final = 70
# The part of a lease after which a request for it counts as unanswered.
_LEASE_TIMEOUT: Final = 0.3


def run_broker(
    config: Config,
    announce: Callable[[str], None],
    on_progress: OnProgress | None = None,
    reread: Reread | None = None,
    worker: Worker | None = None,
    orphaned: socket.socket | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, then close in good order. SIGHUP reads the configuration again
    with `reread`, and applies what can change.

    `announce` is called with ``listening URL`` for each listener, ``monitoring URL`` if there is
    one, then ``ready``; `on_progress` is called with the steps before that. Raises `OSError` if a
    listener cannot listen on its address, `StoreError` if the store cannot be used. If the store
    fails later, the process ends at once, with the status `STORE_FAILED`.

    `worker` is set if this is one of several processes of a broker. Then SIGINT is for the process
    that has started it, and SIGUSR1 stands for a second signal: a terminal and systemd send theirs
    to all processes. It stops, too, when nobody has the other end of `orphaned` any more.
    """
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(config, announce, on_progress, reread, worker, orphaned))


def _make_server(
    config: Config, on_progress: OnProgress | None, reread: Reread | None, worker: Worker | None
) -> BrokerServer | ReplicatedServer:
    if not config.replication.is_on:
        return BrokerServer(
            config,
            on_failure=_end_at_once,
            on_progress=on_progress,
            reread=reread,
            worker=worker,
        )
    # An extra, and imported only when needed.
    from ferrymq_broker.replication.postgresql.journal import PostgresqlJournal
    from ferrymq_broker.server.replicated_server import ReplicatedServer

    settings = config.replication
    assert settings.url is not None
    journal = PostgresqlJournal(
        settings.url.get_secret_value(),
        settings.cluster,
        asyncio.get_running_loop(),
        lease_timeout=settings.lease / 1000 * _LEASE_TIMEOUT,
    )
    return ReplicatedServer(
        config, journal, on_failure=_end_at_once, on_progress=on_progress, reread=reread
    )


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if importlib.util.find_spec("uvloop") is None:
        return None
    import uvloop

    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def _end_at_once(error: StoreError) -> None:
    """End the process after a failure of the store, which was logged, without flushing buffers."""
    sys.stderr.flush()
    os._exit(STORE_FAILED)


async def _serve(
    config: Config,
    announce: Callable[[str], None],
    on_progress: OnProgress | None,
    reread: Reread | None,
    worker: Worker | None,
    orphaned: socket.socket | None,
) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    server = _make_server(config, on_progress, reread, worker)
    server.on_reload.append(reopen_logs)

    def on_signal() -> None:
        if stop.is_set() and worker is None:
            # A second signal: do not wait for outcomes.
            server.hurry()
        stop.set()

    if worker is not None:
        loop.add_signal_handler(signal.SIGUSR1, server.hurry)
    if orphaned is not None:
        orphaned.setblocking(False)
        loop.add_reader(orphaned, _read_end, loop, orphaned, stop)
    for number in (signal.SIGTERM, signal.SIGINT) if worker is None else (signal.SIGTERM,):
        # Windows has no signal handlers in the event loop; there Ctrl-C ends the runner.
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(number, on_signal)
    with contextlib.suppress(NotImplementedError, AttributeError):
        loop.add_signal_handler(signal.SIGHUP, server.reload)
    raise_descriptor_limit()
    if not await _start(server, stop):
        return
    try:
        for address in server.addresses:
            announce(f"listening {address.url}")
        if server.monitoring_url is not None:
            announce(f"monitoring {server.monitoring_url}")
        announce("ready")
        tell_service_manager("READY=1")
        tune_garbage_collector()
        keeper = asyncio.create_task(_keep_house(server, process_heap()))
        await stop.wait()
        keeper.cancel()
        tell_service_manager("STOPPING=1")
        log.info("stopping")
        audit.stopping("told to stop")
    finally:
        await server.close()


def _read_end(loop: asyncio.AbstractEventLoop, peer: socket.socket, stop: asyncio.Event) -> None:
    """Stop, because the process that has started this one is gone."""
    with contextlib.suppress(BlockingIOError, InterruptedError):
        if not peer.recv(1):
            loop.remove_reader(peer)
            stop.set()


def tell_service_manager(state: str) -> None:
    """Tell systemd the state of the broker (sd_notify(3)), if systemd has started the process and
    wants to know."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            # A name that begins with @ is in the abstract namespace.
            manager.connect("\0" + address[1:] if address.startswith("@") else address)
            manager.send(state.encode())
    except OSError as error:
        log.warning("the service manager cannot be told", reason=str(error))


async def _start(server: BrokerServer | ReplicatedServer, stop: asyncio.Event) -> bool:
    """Start the server, unless told to stop meanwhile. Return whether it has started.

    Recovery changes nothing in the store until it is complete, so giving up does no harm.
    """
    starting = asyncio.ensure_future(server.start())
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
    if not starting.done():
        log.info("stopping before it was ready")
        starting.cancel()
        await asyncio.wait((starting,))
        return False
    starting.result()
    return True


async def _keep_house(server: BrokerServer | ReplicatedServer, heap: Heap | None) -> None:
    shrink = None if heap is None else heap.shrink
    trim, unmap = find_trim(), find_unmap()
    broker: Broker | None = None
    housekeeping: Housekeeping | None = None
    looks = 0
    while True:
        found = server.started_broker
        if found is not None and found is not broker:
            # A member of a cluster has a new broker for each part.
            broker, housekeeping = found, Housekeeping(found, unmap)
        await asyncio.sleep(PERIOD)
        looks += 1
        emptied = (
            housekeeping is not None and server.started_broker is broker and housekeeping.look()
        )
        if emptied:
            await return_memory(shrink, trim)
        elif looks % SHRINK_EVERY == 0:
            await return_memory(shrink, None)
