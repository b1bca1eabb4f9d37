"""Where the messages of a queue have gone: its figures have to add up, at every step."""

from __future__ import annotations

from ferrymq_broker.nodes.queues.queue import Queue


class Account:
    """Of one queue. What its figures do not tell apart is booked by who causes it."""

    def __init__(self, queue: Queue, restored: bool = False) -> None:
        self.queue = queue
        # What had gone before the broker was started again.
        self._before = 0
        self.purged = 0
        self.moved = 0
        self._overflowed = 0
        # Pushed out to the dead-letter address, not just dropped.
        self._sent_on = 0
        # What somebody has had since before.
        self._given = 0
        if restored:
            done = queue.accepted + queue.rejected + queue.released + queue.modified
            self._given = int(done + queue.acquired - queue.dispatcher.delivered)
            came, left, inside = self._figures()
            self._before = came - left - inside

    def balance(self) -> None:
        """Everything that was taken in is somewhere."""
        came, left, inside = self._figures()
        assert came == left + inside, f"{came} came, {left} went, {inside} are there: {self.queue}"

    def _figures(self) -> tuple[int, int, int]:
        figures = {
            name: value for name, value in self.queue.describe().items() if isinstance(value, int)
        }
        overflowed = figures["overflowed"]
        if self.queue.policy.overflow in ("dead-letter", "reject-dead-letter"):
            self._sent_on += overflowed - self._overflowed
        self._overflowed = overflowed
        returned = figures["released"] + figures["modified"]
        settled = figures["accepted"] + figures["rejected"]
        # Delivered settled: it never was in the hands of a consumer without being done with.
        given = figures["delivered"] + self._given
        gone_at_once = given - returned - settled - figures["acquired"]
        assert gone_at_once >= 0
        buried = figures["dead-lettered"] + figures["dropped"]
        failed = buried - figures["rejected"] - figures["expirations"] - self._sent_on
        assert 0 <= failed <= figures["modified"]
        left = (
            self._before
            + settled
            + gone_at_once
            + failed
            + figures["expirations"]
            + overflowed
            + figures["replaced"]
            + self.purged
            + self.moved
        )
        inside = figures["available"] + figures["acquired"]
        assert figures["messages"] == inside + figures["scheduled"]
        return figures["published"], left, inside
