"""The broker's log: events with their facts, through structlog to the standard library's logging.

So a program that embeds the broker hears of it as of everything else, by the logger
``ferrymq.broker``, and nothing is printed that it did not ask for. `server.logs` sets up the output
of a broker that is a process of its own.
"""

from __future__ import annotations

import logging
from typing import Any, Final

import structlog

# What every event gets, whoever prints it.
SHARED_PROCESSORS: Final[list[structlog.types.Processor]] = [
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso"),
    structlog.processors.format_exc_info,
]

log: Final[Any] = structlog.wrap_logger(
    logging.getLogger("ferrymq.broker"),
    processors=[
        structlog.stdlib.filter_by_level,
        *SHARED_PROCESSORS,
        structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
    ],
    wrapper_class=structlog.stdlib.BoundLogger,
    cache_logger_on_first_use=True,
)
