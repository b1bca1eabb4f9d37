"""The logs of a broker process: a line for each event on standard error, as text or JSON, and the
audit log in a file if the configuration names one."""

from __future__ import annotations

import logging
import sys

import structlog

from ferrymq_broker import audit
from ferrymq_broker.config.errors import ConfigError
from ferrymq_broker.config.log import Log
from ferrymq_broker.event_log import SHARED_PROCESSORS
from ferrymq_broker.server.audit_file import AuditFile


def configure_logging(log: Log) -> None:
    """Set up logging for all loggers of this process. Raises `ConfigError` if the file of the audit
    log cannot be opened."""
    renderer: structlog.types.Processor
    if log.format == "json":
        renderer = structlog.processors.JSONRenderer()
    else:
        renderer = structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_formatter(renderer))
    logging.basicConfig(handlers=[handler], level=log.level.upper(), force=True)
    _configure_audit(log)


def reopen_logs() -> None:
    """Go on in new files, because the old ones have been moved away."""
    for handler in logging.getLogger(audit.LOGGER).handlers:
        if isinstance(handler, AuditFile):
            handler.reopen()


def _configure_audit(log: Log) -> None:
    logger = logging.getLogger(audit.LOGGER)
    for before in list(logger.handlers):
        logger.removeHandler(before)
        before.close()
    logger.setLevel(logging.NOTSET)
    logger.propagate = log.audit is None
    if log.audit is None:
        return
    # The audit log does not depend on the level of the other log.
    logger.setLevel(logging.INFO)
    try:
        file = AuditFile(log.audit)
    except OSError as error:
        raise ConfigError(
            f"log.audit: {log.audit} cannot be opened: {error.strerror or error}"
        ) from None
    file.setFormatter(_formatter(structlog.processors.JSONRenderer()))
    logger.addHandler(file)


def _formatter(renderer: structlog.types.Processor) -> logging.Formatter:
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=SHARED_PROCESSORS,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
    )
