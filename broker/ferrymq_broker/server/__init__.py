"""The broker's server: listeners, connections, and the process."""

from __future__ import annotations

from ferrymq_broker.server.server import BrokerServer

__all__ = ["BrokerServer"]
