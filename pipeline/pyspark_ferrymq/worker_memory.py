"""Loaded modules in Spark's Python workers, which need no garbage collection.

Spark collects all garbage of a worker after each task, before the worker takes the next one. With
pyarrow and Spark's own modules loaded, that takes 40 ms of processor time, more than the task of a
small batch.
"""

from __future__ import annotations

import gc

_frozen = False


def freeze_modules() -> None:
    """Exclude what exists now from garbage collection, once per process; runs at the end of a task.

    It costs memory only if the first task left garbage, so that is collected first.
    """
    global _frozen
    if _frozen:
        return
    _frozen = True
    gc.collect()
    gc.freeze()
