"""Connections that a Python worker keeps for its next tasks.

Spark uses its Python workers again: with small batches, each of them runs several tasks a second. A
new connection costs a task some ten round trips, and with TLS milliseconds of processor time on
both sides. So a task that has succeeded leaves its connection to the next task of the same query
with the same options. If none takes it within `IDLE_SECONDS`, it is closed.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from pyspark_ferrymq.options.connection import connect

if TYPE_CHECKING:
    from ferrymq.blocking import Connection, ManagementClient, Sender
    from pyspark_ferrymq.options import BrokerOptions

IDLE_SECONDS: Final = 10.0
# The most senders of a connection; the least recently used one is closed first.
_SENDERS: Final = 256

# By options and role: connections that no task uses, and the timers that close them.
_idle: dict[tuple[BrokerOptions, str], list[tuple[WorkerConnection, threading.Timer]]] = {}
_lock = threading.Lock()


class WorkerConnection:
    """A connection, with the links that all tasks need. `timeout` is for requests, in seconds."""

    def __init__(self, connection: Connection, timeout: float) -> None:
        self.connection = connection
        self._timeout = timeout
        self._management: ManagementClient | None = None
        self._senders: OrderedDict[str, Sender] = OrderedDict()

    def management(self) -> ManagementClient:
        """Return a client of the management node. Raises `LinkDetached` if there is none."""
        if self._management is None or self._management.closed:
            self._management = self.connection.management(timeout=self._timeout)
        return self._management

    def sender(self, address: str) -> Sender:
        """Return a sender to an address. Raises `LinkDetached` if the broker refuses it."""
        from ferrymq.batches import BATCHES

        sender = self._senders.pop(address, None)
        if sender is None or sender.closed:
            if len(self._senders) >= _SENDERS:
                # Messages that were sent in a transaction stay part of it.
                self._senders.popitem(last=False)[1].close()
            ferrymq = self.connection.remote_properties.get("product") == "ferrymq"
            properties: dict[str, object] | None = {BATCHES: True} if ferrymq else None
            sender = self.connection.sender(address, properties=properties)
        self._senders[address] = sender
        return sender

    def close(self) -> None:
        """Close the connection, which may be lost already."""
        from ferrymq import ConnectionClosed

        try:
            self.connection.close()
        except (ConnectionClosed, TimeoutError):
            pass


@contextmanager
def worker_connection(
    settings: BrokerOptions, role: str, *, patient: bool = False, new: bool = False
) -> Iterator[WorkerConnection]:
    """Take a connection that an earlier task has left, or open one, and leave it to the next task.

    After an error it is closed. The caller closes links of its own. `role` and `patient` are those
    of `connect`, which raises its errors here. With `new`, no earlier connection is taken.
    """
    key = settings, role
    found = None if new else _take(key)
    if found is None:
        found = WorkerConnection(connect(settings, role, patient=patient), settings.timeout)
    try:
        yield found
    except BaseException:
        found.close()
        raise
    # Without this variable, the process ends after the task.
    if "SPARK_REUSE_WORKER" in os.environ:
        _leave(key, found)
    else:
        found.close()


def _take(key: tuple[BrokerOptions, str]) -> WorkerConnection | None:
    while True:
        with _lock:
            waiting = _idle.get(key)
            if not waiting:
                return None
            found, timer = waiting.pop()
            if not waiting:
                del _idle[key]
        timer.cancel()
        if not found.connection.closed:
            return found


def _leave(key: tuple[BrokerOptions, str], connection: WorkerConnection) -> None:
    timer = threading.Timer(IDLE_SECONDS, _expire, (key, connection))
    timer.daemon = True
    with _lock:
        _idle.setdefault(key, []).append((connection, timer))
    timer.start()


def _expire(key: tuple[BrokerOptions, str], connection: WorkerConnection) -> None:
    with _lock:
        waiting = _idle.get(key, [])
        left = [one for one in waiting if one[0] is not connection]
        if len(left) == len(waiting):
            # A task has taken it.
            return
        if left:
            _idle[key] = left
        else:
            del _idle[key]
    connection.close()
