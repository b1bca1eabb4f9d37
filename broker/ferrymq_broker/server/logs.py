"""The logs of a broker process: a line for each event on standard error, as text or JSON, and the
audit log in a file if the configuration names one."""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog

from ferrymq_broker import audit
from ferrymq_broker.config.errors import ConfigError
from ferrymq_broker.config.log import Log
from ferrymq_broker.event_log import SHARED_PROCESSORS
from ferrymq_broker.server.audit_file import AuditFile


def configure_logging(log: Log, worker: int | None = None) -> None:
    """Set up logging for all loggers of this process. If it is one of several of a broker, each
    entry has the number of the `worker`. Raises `ConfigError` if the file of the audit log cannot
    be opened."""
    renderer: structlog.types.Processor
    if log.format == "json":
        renderer = structlog.processors.JSONRenderer()
    else:
        renderer = structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_formatter(renderer, worker))
    logging.basicConfig(handlers=[handler], level=log.level.upper(), force=True)
    _configure_audit(log, worker)


def reopen_logs() -> None:
    """Go on in new files, because the old ones have been moved away."""
    for handler in logging.getLogger(audit.LOGGER).handlers:
        if isinstance(handler, AuditFile):
            handler.reopen()


def _configure_audit(log: Log, worker: int | None) -> None:
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
    file.setFormatter(_formatter(structlog.processors.JSONRenderer(), worker))
    logger.addHandler(file)


def _formatter(renderer: structlog.types.Processor, worker: int | None) -> logging.Formatter:
    processors = [structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer]
    if worker is not None:
        processors.insert(1, _WorkerNumber(worker))
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=SHARED_PROCESSORS, processors=processors
    )


class _WorkerNumber:
    """A structlog processor that adds the number of the process to each entry."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __call__(
        self, logger: Any, method: str, event: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        event["worker"] = self._number
        return event
