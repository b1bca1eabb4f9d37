"""The renewal of leases while a query works with them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from pyspark_ferrymq.broker_queues import BrokerQueues
from pyspark_ferrymq.data_loss import LOGGER
from pyspark_ferrymq.errors import AmqpSourceError

if TYPE_CHECKING:
    from pyspark_ferrymq.options import BrokerOptions

# A lease is renewed so many times while it holds, and a renewal that failed is repeated so many
# times before the next one is due.
_RENEWALS: Final = 4
_TRIES: Final = 4


class LeaseRenewal:
    """A thread that renews leases for `duration` ms, over a connection of its own.

    It runs in the driver's process of the query, which waits for Spark most of the time. When the
    process ends, the renewals end, and the leases lapse.
    """

    def __init__(self, settings: BrokerOptions, duration: int) -> None:
        self._settings = settings
        self._duration = duration
        self._lock = threading.Lock()
        # The holder and the numbers of the leases, by queue.
        self._leases: dict[str, tuple[str, set[int]]] = {}
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def keep(self, queue: str, holder: str, number: int) -> None:
        """Renew a lease from now on."""
        with self._lock:
            before = self._leases.get(queue)
            numbers = before[1] if before is not None and before[0] == holder else set()
            self._leases[queue] = (holder, numbers | {number})
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="ferrymq-leases", daemon=True
                )
                self._thread.start()

    def drop(self, queue: str, until: int) -> set[int]:
        """Stop the renewals of the leases of a queue up to a number; return their numbers."""
        with self._lock:
            holder, numbers = self._leases.pop(queue, ("", set()))
            over = {number for number in numbers if number <= until}
            if numbers - over:
                self._leases[queue] = (holder, numbers - over)
            return over

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        queues = BrokerQueues(self._settings)
        period = self._duration / 1000 / _RENEWALS
        pause = period
        try:
            while not self._stopped.wait(pause):
                pause = period if self._renew(queues) else period / _TRIES
        finally:
            queues.close()

    def _renew(self, queues: BrokerQueues) -> bool:
        """Renew all leases; return whether the broker has answered."""
        from ferrymq import AmqpError

        with self._lock:
            leases = dict(self._leases)
        for queue, (holder, numbers) in leases.items():
            try:
                there = queues.renew(queue, holder, self._duration)
            except (AmqpError, AmqpSourceError, TimeoutError) as error:
                LOGGER.warning("the leases of the queue %r were not renewed: %s", queue, error)
                return False
            if numbers - there:
                self._note_lapsed(queue, numbers - there)
        return True

    def _note_lapsed(self, queue: str, missing: set[int]) -> None:
        """Note that the broker does not have some leases, unless they were settled meanwhile."""
        with self._lock:
            holder, numbers = self._leases.get(queue, ("", set()))
            self._leases[queue] = (holder, numbers - missing)
            found = sorted(numbers & missing)
        for number in found:
            LOGGER.warning("%s", lapsed(queue, number))


def lapsed(queue: str, number: int) -> str:
    """Return what is to be said of a lease that has lapsed."""
    return (
        f"the lease {number} of the queue {queue!r} has lapsed, or was released: its messages are"
        " in the queue again, unless the queue was deleted. They will come again, and rows of its"
        " batch that were written already are duplicates then (option 'queueLeaseMs')"
    )
