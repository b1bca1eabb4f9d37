"""Signals that ask a process to end: a worker then stops in good order."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def on_end(stop: Callable[[], object]) -> Iterator[None]:
    """Call `stop` for SIGTERM and SIGINT within the block.

    A signal that the program handles or ignores itself is left alone; so are all of them outside
    the main thread, where no handler can be set.
    """
    before = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            handler = signal.getsignal(number)
            if _is_default(handler):
                before[number] = handler
                signal.signal(number, lambda *_: stop())
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _is_default(handler: object) -> bool:
    if handler in (signal.SIG_DFL, signal.default_int_handler):
        return True
    # asyncio.run cancels the main task on SIGINT with a handler of its own.
    return getattr(getattr(handler, "func", None), "__name__", "") == "_on_sigint"
