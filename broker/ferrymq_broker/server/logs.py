"""Logs: one event with its facts a line, on standard error, for people or for machines."""

from __future__ import annotations

import logging
import sys

import structlog

from ferrymq_broker.config.model import Log


def configure_logging(log: Log) -> None:
    """Set up structlog for this process."""
    renderer: structlog.types.Processor
    if log.format == "json":
        renderer = structlog.processors.JSONRenderer()
    else:
        renderer = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[log.level.upper()]
        ),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
