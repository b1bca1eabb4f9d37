"""The file of the audit log."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path
from typing import Final

from ferrymq_broker.event_log import log

# Seconds between two log messages about a file that cannot be written.
_PERIOD: Final = 60.0


class AuditFile(logging.Handler):
    """A logging handler that appends a line for each entry to the file at `path`, which only its
    owner may read.

    If entries cannot be written, the broker's log says so at intervals, with the number of missing
    entries. Each further entry tries to open the file again. Raises `OSError` if the file cannot be
    opened at the start.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._file: int | None = None
        self._missing = 0
        self._complained = 0.0
        # Whether the last line is incomplete, because the disk was full.
        self._torn = False
        self._open()

    def reopen(self) -> None:
        """Go on in a new file, because the old one has been moved away."""
        self.acquire()
        try:
            self._close()
            self._open()
        except OSError as error:
            self._complain(error)
        finally:
            self.release()

    def emit(self, record: logging.LogRecord) -> None:
        """Write one entry."""
        line = self.format(record).replace("\n", " ") + "\n"
        try:
            if self._file is None:
                self._open()
            self._write(("\n" if self._torn else "") + line)
        except OSError as error:
            self._missing += 1
            self._close()
            self._complain(error)
        else:
            if self._missing:
                missing, self._missing = self._missing, 0
                log.warning(
                    "the audit log can be written again", path=str(self._path), missing=missing
                )

    def close(self) -> None:
        """Close the file."""
        self.acquire()
        try:
            self._close()
        finally:
            self.release()
        super().close()

    def _write(self, text: str) -> None:
        assert self._file is not None
        data = text.encode("utf-8", "replace")
        written = os.write(self._file, data)
        self._torn = False
        if written < len(data):
            self._torn = True
            raise OSError("only a part of an entry could be written")

    def _open(self) -> None:
        # Without O_NONBLOCK, opening a named pipe without a reader would wait.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        self._file = os.open(self._path, flags, 0o600)

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _complain(self, error: OSError) -> None:
        now = time.monotonic()
        if self._complained and now - self._complained < _PERIOD:
            return
        self._complained = now
        reason = error.strerror or str(error)
        log.error(
            "the audit log cannot be written",
            path=str(self._path),
            reason=reason,
            missing=self._missing,
        )
