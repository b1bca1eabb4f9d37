"""Sums over all connections, read a few at a time so that traffic goes on meanwhile."""

from __future__ import annotations

from collections import defaultdict

from ferrymq_broker.broker import Broker
from ferrymq_broker.monitoring.node_totals import AT_ONCE, Pause, pause


class ConnectionTotals:
    """Sums over all connections: deliveries that are not settled, and by user how many connections
    have to wait because of a rate limit."""

    def __init__(self) -> None:
        self.unsettled: int = 0
        self.throttled: dict[str, int] = {}

    async def count(self, broker: Broker, pause: Pause = pause) -> None:
        """Sum the figures."""
        unsettled = 0
        throttled: dict[str, int] = defaultdict(int)
        for at, handler in enumerate(list(broker.handlers)):
            if at % AT_ONCE == AT_ONCE - 1:
                await pause()
            unsettled += int(handler.unsettled())
            throttle = handler.client.throttle
            if throttle is not None and throttle.is_throttled():
                throttled[handler.client.user or ""] += 1
        self.unsettled = unsettled
        self.throttled = throttled
