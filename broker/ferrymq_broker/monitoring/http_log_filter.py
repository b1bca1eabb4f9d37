"""A log filter for malformed HTTP requests.

aiohttp logs a malformed request as an error, with a traceback and the line that it could not read,
which may contain a password. Any client could fill the log that way.
"""

from __future__ import annotations

import logging
from typing import Final

from aiohttp.http_exceptions import HttpProcessingError


class HttpLogFilter(logging.Filter):
    """A filter that reduces records of malformed requests to one line without details."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record is to be logged."""
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, HttpProcessingError):
            return True
        record.exc_info = None
        record.exc_text = None
        record.levelno, record.levelname = logging.INFO, "INFO"
        return LOGGER.isEnabledFor(logging.INFO)


# The logger for all HTTP servers of the broker.
LOGGER: Final = logging.getLogger("ferrymq.http")
LOGGER.addFilter(HttpLogFilter())
