"""The tasks of the cases for Celery, and the application of their workers."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import celery

app = celery.Celery(
    "tests.interop.amqp_0_9_1",
    broker=os.environ.get("CELERY_BROKER"),
    backend=os.environ.get("CELERY_RESULTS"),
)
app.conf.update(
    worker_prefetch_multiplier=1,
    task_queue_max_priority=10,
    broker_connection_retry_on_startup=False,
    worker_hijack_root_logger=False,
    result_backend_always_retry=True,
    task_default_queue="celery-default",
    result_chord_retry_interval=0.1,
)


def _folder() -> Path:
    return Path(os.environ["CELERY_FOLDER"])


@app.task
def add(a: int, b: int) -> int:
    """Return the sum."""
    return a + b


@app.task
def total(numbers: list[int]) -> int:
    """Return the sum of what the tasks of a chord have returned."""
    return sum(numbers)


@app.task
def clock() -> float:
    """Return the time."""
    return time.time()


@app.task(bind=True, max_retries=5)
def third_time(self: Any, name: str) -> int:
    """Fail twice, and return the number of the attempt."""
    if self.request.retries < 2:
        raise self.retry(countdown=0.1)
    return int(self.request.retries) + 1


@app.task
def note(name: str, level: int) -> None:
    """Write down a number."""
    with (_folder() / f"{name}.notes").open("a") as file:
        file.write(f"{level}\n")


def noted(folder: Path, name: str) -> list[str]:
    """Return the numbers that were written down."""
    return (folder / f"{name}.notes").read_text().split()


@app.task(bind=True, acks_late=True)
def survivor(self: Any, name: str) -> str:
    """Say that it has begun, and wait until it may end."""
    (_folder() / f"{name}.started").touch()
    while not (_folder() / f"{name}.finish").exists():
        time.sleep(0.02)
    return "redelivered" if self.request.delivery_info["redelivered"] else "first"
