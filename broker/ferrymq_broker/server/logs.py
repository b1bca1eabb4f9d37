"""The log of a broker process: a line for each event on standard error, for people or machines."""

from __future__ import annotations

import logging
import sys

import structlog

from ferrymq_broker.config.model import Log
from ferrymq_broker.journal import SHARED_PROCESSORS


def configure_logging(log: Log) -> None:
    """Set up logging for this process, whoever logs."""
    renderer: structlog.types.Processor
    if log.format == "json":
        renderer = structlog.processors.JSONRenderer()
    else:
        renderer = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=SHARED_PROCESSORS,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    logging.basicConfig(handlers=[handler], level=log.level.upper(), force=True)
