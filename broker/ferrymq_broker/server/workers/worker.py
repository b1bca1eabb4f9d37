"""A worker: what it serves of the broker, and how it reaches the others."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ferrymq_broker.config.errors import ConfigError
from ferrymq_broker.server.workers.passed_connection import PassedConnection
from ferrymq_broker.server.workers.peers import Peers

if TYPE_CHECKING:
    from ferrymq_broker.broker import Broker
    from ferrymq_broker.capture.service import CaptureService
    from ferrymq_broker.config.listeners import Listener
    from ferrymq_broker.monitoring.metrics_registry import MetricsRegistry


class Worker:
    """The worker with this `number`.

    `placed` has the worker of each virtual host. `listening` are the sockets of the listeners, in
    the order of the configuration; all workers accept from them. `connections` are the numbers of
    connections of all workers: see `ConnectionLimits`. `is_monitored` says that there is a listener
    for monitoring.
    """

    def __init__(
        self,
        number: int,
        placed: Mapping[str, int],
        listening: Sequence[list[socket.socket]],
        peers: Peers,
        connections: memoryview[int],
        is_monitored: bool = False,
    ) -> None:
        self.number = number
        self.listening = listening
        self.peers = peers
        self.connections = connections
        self.is_monitored = is_monitored
        # Called when the configuration was read again and is in force.
        self.on_reloaded: Callable[[], object] = _ignore
        self._placed = placed

    def sockets_of(self, listeners: Sequence[Listener], one: Listener) -> list[socket.socket]:
        """Return the sockets of one of the listeners."""
        for listener, sockets in zip(listeners, self.listening, strict=True):
            if listener is one:
                return sockets
        raise ValueError("another configuration has this listener")

    def mark_hosts(self, broker: Broker) -> None:
        """Mark the virtual hosts that other workers serve."""
        for space in broker.spaces.values():
            number = self._placed[space.name]
            if number != self.number:
                space.elsewhere = number

    def check_stored(self, broker: Broker) -> None:
        """Raise `ConfigError` if the store of this worker has nodes of virtual hosts that others
        serve."""
        for space in broker.spaces.values():
            if space.elsewhere >= 0 and space.nodes:
                raise ConfigError(
                    f"the virtual host {space.name!r} belongs to worker {space.elsewhere}, but the"
                    f" store of worker {self.number} has {len(space.nodes)} of its nodes: write"
                    f" worker = {self.number} in its [[virtual-host]]"
                )

    def show_figures(
        self, broker: Broker, registry: MetricsRegistry, capture: CaptureService | None
    ) -> None:
        """Answer the worker that has the listener for monitoring with the figures of this one."""
        # Imported only when needed, because importing it takes a while.
        from ferrymq_broker.monitoring.metrics_registry import by_node
        from ferrymq_broker.monitoring.worker_metrics import METRICS, WorkerFigures

        figures = WorkerFigures(broker, registry, by_node(capture))
        self.peers.answerers[METRICS] = figures.answer

    def begin(
        self,
        adopt: Callable[[PassedConnection, socket.socket], object],
        lose: Callable[[], object],
    ) -> None:
        """Take connections from the others with `adopt`, call `lose` for one that is lost on its
        way, and answer the questions of the others."""
        self.peers.on_connection = adopt
        self.peers.on_lost = lose
        self.peers.start()


def _ignore() -> None:
    """Do nothing, because nobody wants to know."""
