"""The process that writes files: ``python -m ferrymq_broker.capture.writer_main OPTIONS``.

The broker starts it. When its standard input ends, the broker has ended: the process ends too, and
the records of files that were not closed are captured again later. Only one process at a time
writes to a directory: it holds a lock on the file ``_lock``, which ends with the process.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ferrymq_broker.capture.frames import CaptureFrames, line
from ferrymq_broker.capture.options import CaptureOptions, from_json
from ferrymq_broker.capture.writer import FileWriter, reason_of

LOCK: Final = "_lock"
_READ: Final = 1024 * 1024
# Milliseconds between two attempts to lock, and seconds until the broker is told of the wait.
_AGAIN: Final = 50
_QUIET: Final = 10.0


def main() -> None:
    """Write files until the broker ends."""
    # Signals for the broker, such as Ctrl-C, reach this process too. The broker ends it when all
    # records are sent.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # Text that libraries print must not go to the broker.
    out = os.dup(1)
    os.dup2(2, 1)
    options = from_json(sys.argv[1])

    def say(text: bytes) -> None:
        while text:
            text = text[os.write(out, text) :]

    try:
        lock = _lock(Path(options.directory), say)
        run(options, 0, say)
        os.close(lock)
    except BrokenPipeError:
        pass
    except OSError as error:
        # The broker starts another process.
        say(line("ended", reason=reason_of(error)))
        raise SystemExit(1) from None


def run(options: CaptureOptions, source: int, say: Callable[[bytes], object]) -> None:
    """Handle frames from the descriptor `source` until its end."""
    writer = FileWriter(options, say)
    frames = CaptureFrames()
    while True:
        wait = writer.tick(time.monotonic())
        ready, _, _ = select.select([source], [], [], wait)
        if not ready:
            continue
        data = os.read(source, _READ)
        if not data:
            return
        for kind, body in frames.feed(data):
            writer.handle(kind, body, time.monotonic())


def _lock(directory: Path, say: Callable[[bytes], object]) -> int:
    """Wait for the lock of the directory. Return the descriptor of the locked file."""
    directory.mkdir(parents=True, exist_ok=True)
    number = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    broker = select.poll()
    # Only the end of the pipe is of interest, not data.
    broker.register(0, 0)
    told = time.monotonic() + _QUIET
    while True:
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return number
        except BlockingIOError:
            pass
        if broker.poll(_AGAIN):
            raise SystemExit(0)
        if told <= time.monotonic():
            told = float("inf")
            say(line("waiting"))


if __name__ == "__main__":
    main()
