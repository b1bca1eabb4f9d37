"""What HTTP clients say that is no HTTP: nothing to make a fuss about.

aiohttp logs it as an error, with a traceback and the line that it could not read, which may be one
with a password. Anybody could fill the log so.
"""

from __future__ import annotations

import logging
from typing import Final

from aiohttp.http_exceptions import HttpProcessingError


class HttpLogFilter(logging.Filter):
    """Lets through what is not the client's doing, as it is; the rest as a word on who it was."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it is to be logged."""
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, HttpProcessingError):
            return True
        record.exc_info = None
        record.exc_text = None
        record.levelno, record.levelname = logging.INFO, "INFO"
        return LOGGER.isEnabledFor(logging.INFO)


# Whom servers for HTTP have to use.
LOGGER: Final = logging.getLogger("ferrymq.http")
LOGGER.addFilter(HttpLogFilter())
