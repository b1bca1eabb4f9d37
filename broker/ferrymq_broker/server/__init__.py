"""The broker's server: listeners, connections, and the process."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ferrymq_broker.server.server import BrokerServer

__all__ = ["BrokerServer"]


def __getattr__(name: str) -> object:
    """Import the server at its first use, because other modules here need less."""
    if name != "BrokerServer":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ferrymq_broker.server.server import BrokerServer

    globals()[name] = BrokerServer
    return BrokerServer
