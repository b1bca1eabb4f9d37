"""Retries while the broker is unreachable, for a limited time."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Final, TypeVar

from pyspark_ferrymq.data_loss import LOGGER
from pyspark_ferrymq.errors import AmqpWriteError
from pyspark_ferrymq.options import BrokerOptions
from pyspark_ferrymq.options.connection import AmqpUnreachableError
from pyspark_ferrymq.worker_connections import WorkerConnection, worker_connection

T = TypeVar("T")

# Seconds between two attempts: the first pause, and the longest.
_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 2.0
# The shortest connect timeout, in seconds, near the end of an outage.
_SHORTEST: Final = 1.0


class Outage:
    """The time that the broker is unreachable, for one task or one step of the driver.

    An outage begins when a connection is lost or cannot be opened. It ends when `progress` is
    called, after work that was not done before. `timeout` is the longest allowed outage, in
    seconds.
    """

    def __init__(
        self,
        what: str,
        timeout: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._what = what
        self._timeout = timeout
        self._clock = clock
        self._sleep = sleep
        self._since: float | None = None
        self._pause = _PAUSE

    def left(self) -> float | None:
        """Return the seconds until the timeout; None while there is no outage."""
        if self._since is None:
            return None
        return self._since + self._timeout - self._clock()

    def progress(self) -> None:
        """End the outage, because work was done that was not done before."""
        self._since = None
        self._pause = _PAUSE

    def lost(self, error: Exception, place: str) -> None:
        """Wait before the next attempt.

        Raises `AmqpWriteError` when the outage is longer than the timeout.
        """
        now = self._clock()
        if self._since is None:
            self._since = now
        reason = str(error) or "there was no answer in time"
        if self._since + self._timeout - now <= self._pause:
            raise AmqpWriteError(
                f"{self._what}: {place} was unreachable for {now - self._since:.0f} s, and the time"
                f" to try again is over (option 'write.retryTimeoutMs'): {reason}. What was not"
                " committed is not written"
            ) from None
        LOGGER.warning("%s: %s is unreachable, trying again: %s", self._what, place, reason)
        self._sleep(self._pause)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)


def retrying(
    settings: BrokerOptions, role: str, outage: Outage, work: Callable[[WorkerConnection], T]
) -> T:
    """Do work over a connection; if it is lost, start again from the beginning with a new one.

    Raises `AmqpWriteError` when the outage lasts too long, and the errors of the work.
    """
    while True:
        try:
            with _connected(settings, role, outage) as connection:
                return work(connection)
        except Exception as error:
            if not was_lost(error):
                raise
            outage.lost(error, settings.place)


def was_lost(error: BaseException | None) -> bool:
    """Return whether an error says that the broker was unreachable or the connection was lost."""
    from ferrymq import ConnectionClosed, LinkDetached, SessionEnded, TransactionRolledBack
    from ferrymq.errors import TransactionInDoubt

    if isinstance(error, LinkDetached):
        return error.condition in ("amqp:connection:forced", "amqp:link:detach-forced")
    if isinstance(error, TransactionRolledBack | TransactionInDoubt):
        return was_lost(error.__cause__)
    return isinstance(error, ConnectionClosed | SessionEnded | TimeoutError | AmqpUnreachableError)


def _connected(
    settings: BrokerOptions, role: str, outage: Outage
) -> AbstractContextManager[WorkerConnection]:
    left = outage.left()
    if left is None:
        return worker_connection(settings, role)
    settings = replace(settings, timeout=min(settings.timeout, max(left, _SHORTEST)))
    return worker_connection(settings, role, new=True)
