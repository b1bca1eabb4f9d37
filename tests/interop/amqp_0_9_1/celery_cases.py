"""Cases for Celery: a worker in a process of its own, and tasks that are sent to it.

The results are in a database of SQLite, in the folder for temporary files of this process.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import celery

from tests.interop.amqp_0_9_1 import celery_tasks
from tests.interop.amqp_0_9_1.place import Place
from tests.interop.features.client_process import ROOT
from tests.interop.features.trial import expect

# Seconds. A worker takes some to start.
LONG = 45

_FOLDER = Path(tempfile.mkdtemp(prefix="celery-"))


class Worker:
    """A worker in one process, with a queue of its own."""

    def __init__(self, at: Place, queue: str) -> None:
        self._log = (_FOLDER / f"{queue}.log").open("a")
        login = f"{at.user}:{quote(at.password)}"
        environment = {
            **os.environ,
            "CELERY_BROKER": f"amqp://{login}@{at.host}:{at.port}//",
            "CELERY_RESULTS": f"db+sqlite:///{_FOLDER}/results.sqlite",
            "CELERY_FOLDER": str(_FOLDER),
        }
        command = ["-m", "celery", "-A", "tests.interop.amqp_0_9_1.celery_tasks", "worker"]
        command += ["--pool", "solo", "--queues", queue, "--hostname", f"{queue}@here"]
        command += ["--without-gossip", "--without-mingle", "--loglevel", "INFO"]
        self.process = subprocess.Popen(
            [sys.executable, *command],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
        )
        # Ends the worker when this process ends, which may be killed.
        self._guard = subprocess.Popen(
            ["sh", "-c", f"read end || kill -9 {self.process.pid}"],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def kill(self) -> None:
        """End it without a chance to say goodbye."""
        self.process.kill()
        self.process.wait()
        self._guard.communicate(b"end\n")

    def stop(self) -> None:
        """End it by SIGTERM."""
        self.process.terminate()
        try:
            self.process.wait(LONG)
        finally:
            self.kill()


_shared: dict[str, Worker] = {}


def application(at: Place) -> Any:
    """Return Celery's application, on the broker and the results of the workers."""
    login = f"{at.user}:{quote(at.password)}"
    celery_tasks.app.conf.update(
        broker_url=f"amqp://{login}@{at.host}:{at.port}//",
        result_backend=f"db+sqlite:///{_FOLDER}/results.sqlite",
    )
    return celery_tasks.app


@contextmanager
def worker(at: Place) -> Iterator[tuple[Any, str]]:
    """Start a worker for the queue that most cases share, and return the name of the queue."""
    queue = "celery-shared"
    app = application(at)
    if queue not in _shared:
        _shared[queue] = Worker(at, queue)
    yield app, queue


def _until(path: Path) -> None:
    deadline = time.monotonic() + LONG
    while not path.exists():
        assert time.monotonic() < deadline, f"{path.name} did not begin"
        time.sleep(0.02)


def task(at: Place) -> None:
    with worker(at) as (_, queue):
        results = [celery_tasks.add.apply_async((number, 1), queue=queue) for number in range(10)]
        expect([each.get(timeout=LONG) for each in results], list(range(1, 11)))


def retry(at: Place) -> None:
    with worker(at) as (_, queue):
        result = celery_tasks.third_time.apply_async((at.name(),), queue=queue)
        expect(result.get(timeout=LONG), 3)


def countdown(at: Place) -> None:
    with worker(at) as (_, queue):
        start = time.time()
        result = celery_tasks.clock.apply_async((), queue=queue, countdown=1)
        ran = result.get(timeout=LONG)
        assert ran - start >= 0.95, f"it ran after {ran - start:.2f} s"


def eta(at: Place) -> None:
    with worker(at) as (_, queue):
        when = datetime.now(UTC) + timedelta(seconds=1)
        result = celery_tasks.clock.apply_async((), queue=queue, eta=when)
        ran = result.get(timeout=LONG)
        assert ran >= when.timestamp() - 0.05, "it ran too early"


def chain(at: Place) -> None:
    with worker(at) as (_, queue):
        add = celery_tasks.add
        work = celery.chain(
            add.s(1, 2).set(queue=queue), add.s(3).set(queue=queue), add.s(4).set(queue=queue)
        )
        expect(work.apply_async().get(timeout=LONG), 10)


def chord(at: Place) -> None:
    with worker(at) as (_, queue):
        header = [celery_tasks.add.s(number, number).set(queue=queue) for number in range(5)]
        work = celery.chord(header)(celery_tasks.total.s().set(queue=queue))
        expect(work.get(timeout=LONG), 20)


def task_priority(at: Place) -> None:
    application(at)
    queue = at.name()
    for level in (1, 9, 5):
        celery_tasks.note.apply_async((at.name(), level), queue=queue, priority=level)
    last = celery_tasks.note.apply_async((at.name(), 0), queue=queue, priority=0)
    started = Worker(at, queue)
    try:
        last.get(timeout=LONG)
    finally:
        started.stop()
    expect(celery_tasks.noted(_FOLDER, at.name()), ["9", "5", "1", "0"])


def acks_late(at: Place) -> None:
    application(at)
    queue = at.name()
    started, finish = _FOLDER / f"{at.name()}.started", _FOLDER / f"{at.name()}.finish"
    result = celery_tasks.survivor.apply_async((at.name(),), queue=queue)
    first = Worker(at, queue)
    _until(started)
    first.kill()
    started.unlink()
    finish.touch()
    second = Worker(at, queue)
    try:
        expect(result.get(timeout=LONG), "redelivered")
    finally:
        second.stop()


def remote_control(at: Place) -> None:
    with worker(at) as (app, queue):
        celery_tasks.add.apply_async((1, 1), queue=queue).get(timeout=LONG)
        deadline = time.monotonic() + LONG
        while not (answers := app.control.ping(destination=[f"{queue}@here"], timeout=2)):
            assert time.monotonic() < deadline, "the worker does not answer"
        expect(answers, [{f"{queue}@here": {"ok": "pong"}}])
