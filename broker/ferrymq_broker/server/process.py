"""The broker as a process: event loop, signals, garbage collector."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import signal
from collections.abc import Callable

from ferrymq_broker.broker import Broker
from ferrymq_broker.config.model import Config
from ferrymq_broker.journal import log
from ferrymq_broker.server.housekeeping import (
    PERIOD,
    Housekeeping,
    find_trim,
    tune_garbage_collector,
)
from ferrymq_broker.server.server import BrokerServer


def run_broker(config: Config, announce: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT, then close in good order.

    `announce` gets ``listening URL`` for each listener, ``monitoring URL`` if there is one, then
    ``ready``. Raises `OSError` when a
    listener's address cannot be had.
    """
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(config, announce))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if importlib.util.find_spec("uvloop") is None:
        return None
    import uvloop

    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


async def _serve(config: Config, announce: Callable[[str], None]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    server = BrokerServer(config)

    def on_signal() -> None:
        if stop.is_set():
            # Told twice: whoever it is does not want to wait for outcomes.
            server.hurry()
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        # Windows has no signal handlers in the event loop; there Ctrl-C ends the runner.
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(number, on_signal)
    async with server:
        for address in server.addresses:
            announce(f"listening {address.url}")
        if server.monitoring is not None:
            announce(f"monitoring {server.monitoring.url}")
        announce("ready")
        tune_garbage_collector()
        keeper = asyncio.create_task(_keep_house(server.broker))
        await stop.wait()
        keeper.cancel()
        log.info("stopping")


async def _keep_house(broker: Broker) -> None:
    housekeeping = Housekeeping(broker, find_trim())
    while True:
        await asyncio.sleep(PERIOD)
        housekeeping.look()
