"""The broker's log: events with their facts, through structlog to the standard library's logging.

So a program that embeds the broker gets its events through the logger ``ferrymq.broker``, and the
broker itself prints nothing. `server.logs` sets up the output of a broker that runs as its own
process.

An event that a client can cause has the fact ``peer``. The rate of such events is limited for each
peer and for each address that peers come from. Entries that are left out are counted in the next
entry, as ``left_out``.
"""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import Any, Final

import structlog

from ferrymq_broker.log_rate_limit import LogRateLimiter, host_of
from ferrymq_broker.sanitize import clean_lines, clean_value

# The rate limits for one connection, and for all connections from one address: the entries at once,
# and the entries per second.
_OF_PEER: Final = (100, 1.0)
_OF_HOST: Final = (5000, 50.0)
# The last event of a connection is one of these.
_LAST: Final = frozenset({"connection closed", "connection lost"})


class _SizeLimit:
    """A structlog processor that limits the rate of events that clients cause."""

    def __init__(self) -> None:
        self._peers = LogRateLimiter(*_OF_PEER)
        self._hosts = LogRateLimiter(*_OF_HOST)

    def __call__(
        self, logger: Any, method: str, event: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        peer = event.get("peer")
        if not isinstance(peer, str):
            return event
        if event.get("event") in _LAST:
            left_out: int | None = self._peers.end(peer)
        else:
            left_out = self._peers.let(peer)
        if left_out is None:
            raise structlog.DropEvent
        left_out = self._hosts.let(host_of(peer), left_out)
        if left_out is None:
            raise structlog.DropEvent
        if left_out:
            event["left_out"] = left_out
        return event


def make_clean(
    logger: Any, method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Make facts safe to print: short, in one line, without control characters."""
    for key, value in event.items():
        if key == "exception" and isinstance(value, str):
            event[key] = clean_lines(value)
        elif not key.startswith("_"):
            event[key] = clean_value(value)
    return event


# Applied to every event of all loggers.
SHARED_PROCESSORS: Final[list[structlog.types.Processor]] = [
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso"),
    structlog.processors.format_exc_info,
    make_clean,
]

log: Final[Any] = structlog.wrap_logger(
    logging.getLogger("ferrymq.broker"),
    processors=[
        structlog.stdlib.filter_by_level,
        _SizeLimit(),
        *SHARED_PROCESSORS,
        structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
    ],
    wrapper_class=structlog.stdlib.BoundLogger,
    cache_logger_on_first_use=True,
)
