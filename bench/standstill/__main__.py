"""`python -m bench.standstill`. SIGTERM ends it properly: no process and no file is left."""

from __future__ import annotations

import signal
import sys

from bench.standstill.cli import main


def _end(number: int, _frame: object) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _end)
    sys.exit(main())
