"""The queue: first in, first out, each message to one consumer; browsers look on.

Entries lie in one list in order of publication. Three things point into it:

- `_fresh`, the first entry that was never delivered: everything behind it is available, so a first
  delivery costs nothing but a step;
- `_returned`, a heap of entries that were delivered and came back. They are older than every fresh
  one and go first, so that a message comes back to the place it was published at, however it
  returned: released, modified, or by the loss of its link;
- the `position` of every browser.

Consumers that may be offered something are in `_ready` and take turns, message by message. One that
answers IDLE is taken out until it wakes; none is ever asked in vain twice.

An entry may have excluded consumers. If no ready one remains it is set aside, in `_waiting` when
another consumer could still wake up for it, in `_stranded` when only a new one can help.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from ferrymq_broker.nodes.consumer import IDLE, SETTLED, TAKEN, Consumer
from ferrymq_broker.nodes.entry import ACQUIRED, AVAILABLE, REMOVED, Entry
from ferrymq_broker.nodes.node import PERMANENT, Node, Refusal, Space
from ferrymq_broker.nodes.policy import QueuePolicy
from ferrymq_broker.nodes.terms import SourceTerms

if TYPE_CHECKING:
    from ferrymq_broker.nodes.message import Message
    from ferrymq_types.transport import Error


@final
class Queue(Node):
    """A queue in memory. `available` and `acquired` count its entries by state."""

    __slots__ = (
        "policy",
        "available",
        "acquired",
        "published",
        "rejected",
        "consumers",
        "_first",
        "_last",
        "_fresh",
        "_returned",
        "_waiting",
        "_stranded",
        "_ready",
        "_turn",
        "_browsers",
        "_draining",
    )

    def __init__(
        self, address: str, space: Space, policy: QueuePolicy, lifetime: i64 = PERMANENT
    ) -> None:
        super().__init__(address, space, lifetime)
        self.policy = policy
        self.available: i64 = 0
        self.acquired: i64 = 0
        # Since the queue was made: messages taken in, and messages consumers rejected.
        self.published: i64 = 0
        self.rejected: i64 = 0
        self.consumers: list[Consumer] = []
        self._first: Entry | None = None
        self._last: Entry | None = None
        self._fresh: Entry | None = None
        self._returned: list[tuple[int, Entry]] = []
        self._waiting: list[Entry] = []
        self._stranded: list[Entry] = []
        self._ready: list[Consumer] = []
        # Whose turn it is: an index into `_ready`.
        self._turn: i64 = 0
        self._browsers: list[Consumer] = []
        self._draining: list[Consumer] = []

    def __repr__(self) -> str:
        return f"<queue {self.address!r} {self.available}+{self.acquired}>"

    @property
    def kind(self) -> str:
        """``queue``."""
        return "queue"

    def open_source(self, terms: SourceTerms) -> Node:
        """Consumers and browsers both."""
        self.target(terms.part)
        terms.browses = terms.distribution_mode == "copy"
        terms.granted_mode = "copy" if terms.browses else "move"
        if "queue" in terms.capabilities:
            terms.granted_capabilities.append("queue")
        return self

    # -- messages in -------------------------------------------------------------------

    def publish(self, message: Message) -> Refusal | None:
        """Append the message."""
        self.published += 1
        entry = Entry(message, self.published)
        last = self._last
        if last is None:
            self._first = entry
        else:
            last.next = entry
            entry.prev = last
        self._last = entry
        if self._fresh is None:
            self._fresh = entry
        self.available += 1
        if not self.dirty:
            self.touch()
        return None

    # -- outcomes ----------------------------------------------------------------------

    def remove(self, consumer: Consumer, entry: Entry) -> None:
        """The message the consumer holds is done with."""
        consumer.unhold(entry)
        self.acquired -= 1
        self._unlink(entry)

    def reject(self, consumer: Consumer, entry: Entry, error: Error | None) -> None:
        """The consumer found the message invalid: it leaves the queue (AMQP 1.0 §3.4.3)."""
        self.rejected += 1
        self.remove(consumer, entry)

    def give_back(self, consumer: Consumer, entry: Entry, failed: bool, elsewhere: bool) -> None:
        """The message the consumer holds returns to its place.

        `failed` counts the delivery as a failed one; `elsewhere` keeps the message from this
        consumer from now on (AMQP 1.0 §3.4.4–5).
        """
        consumer.unhold(entry)
        if failed:
            entry.failures += 1
        if elsewhere:
            entry.exclude(consumer.id)
        entry.state = AVAILABLE
        self.acquired -= 1
        self.available += 1
        heappush(self._returned, (entry.sequence, entry))
        self.touch()

    def _unlink(self, entry: Entry) -> None:
        for browser in self._browsers:
            if browser.position is entry:
                browser.position = entry.prev
        before = entry.prev
        after = entry.next
        if before is None:
            self._first = after
        else:
            before.next = after
            entry.prev = None
        if after is None:
            self._last = before
        else:
            after.prev = before
            entry.next = None
        entry.state = REMOVED

    # -- consumers ---------------------------------------------------------------------

    def subscribe(self, consumer: Consumer) -> None:
        """Add a consumer or a browser."""
        self.consumers.append(consumer)
        if consumer.copies:
            self._browsers.append(consumer)
        elif self._stranded:
            self._reconsider(self._stranded)
            self._stranded = []

    def unsubscribe(self, consumer: Consumer) -> None:
        """Forget a consumer that has given back what it held."""
        if consumer in self.consumers:
            self.consumers.remove(consumer)
        if consumer in self._draining:
            self._draining.remove(consumer)
        if consumer.copies:
            if consumer in self._browsers:
                self._browsers.remove(consumer)
            consumer.position = None
        elif consumer.ready:
            self._ready.remove(consumer)
        consumer.ready = False

    def wake(self, consumer: Consumer) -> None:
        """The consumer has credit, or its transport takes bytes again."""
        if not consumer.ready:
            consumer.ready = True
            if not consumer.copies:
                self._ready.append(consumer)
                if self._waiting:
                    self._reconsider(self._waiting)
                    self._waiting = []
        if not self.dirty:
            self.touch()

    def want_drained(self, consumer: Consumer) -> None:
        """The consumer asked for what there is and no more (AMQP 1.0 §2.6.7)."""
        if consumer not in self._draining:
            self._draining.append(consumer)
        self.touch()

    def _reconsider(self, entries: list[Entry]) -> None:
        for entry in entries:
            heappush(self._returned, (entry.sequence, entry))
        self.touch()

    # -- messages out ------------------------------------------------------------------

    def dispatch(self) -> None:
        """Offer messages until they, or the consumers that can take them, run out."""
        if self._browsers:
            self._show()
        ready = self._ready
        while ready:
            returned = self._returned
            entry: Entry | None
            if returned:
                entry = returned[0][1]
            else:
                entry = self._fresh
                if entry is None:
                    break
            turn = self._turn
            if turn >= len(ready):
                turn = 0
            consumer = ready[turn]
            excluded = entry.excluded
            if excluded is not None and consumer.id in excluded:
                turn = self._find(excluded)
                if turn < 0:
                    self._step(entry)
                    self._set_aside(entry, excluded)
                    continue
                consumer = ready[turn]
            verdict = consumer.deliver(entry)
            if verdict == TAKEN:
                self._step(entry)
                entry.state = ACQUIRED
                entry.attempts += 1
                self.available -= 1
                self.acquired += 1
                consumer.hold(entry)
                self._turn = turn + 1
            elif verdict == SETTLED:
                self._step(entry)
                self.available -= 1
                self._unlink(entry)
                self._turn = turn + 1
            elif verdict == IDLE:
                consumer.ready = False
                del ready[turn]
                self._turn = turn
            else:
                entry.exclude(consumer.id)
        if self._draining:
            self._draining = [c for c in self._draining if not c.nothing_left()]

    def _step(self, entry: Entry) -> None:
        """The entry at the front is dealt with: go on to the one behind it."""
        if self._returned:
            heappop(self._returned)
        else:
            self._fresh = entry.next

    def _find(self, excluded: set[int]) -> i64:
        """A ready consumer that is not excluded, by index; −1 if there is none."""
        ready = self._ready
        i: i64 = 0
        while i < len(ready):
            if ready[i].id not in excluded:
                return i
            i += 1
        return -1

    def _set_aside(self, entry: Entry, excluded: set[int]) -> None:
        for consumer in self.consumers:
            if not consumer.copies and consumer.id not in excluded:
                self._waiting.append(entry)
                return
        self._stranded.append(entry)

    def _show(self) -> None:
        """Show the browsers what they have not seen. What others hold is passed over."""
        for browser in list(self._browsers):
            position = browser.position
            entry = self._first if position is None else position.next
            while entry is not None and browser.ready:
                if entry.state == AVAILABLE and browser.deliver(entry) == IDLE:
                    browser.ready = False
                    break
                browser.position = entry
                entry = entry.next

    # -- the end -----------------------------------------------------------------------

    def clear(self) -> int:
        """Drop every message nobody holds; how many there were."""
        count: i64 = 0
        entry = self._first
        while entry is not None:
            after = entry.next
            if entry.state == AVAILABLE:
                self._unlink(entry)
                count += 1
            entry = after
        self._fresh = None
        self._returned = []
        self._waiting = []
        self._stranded = []
        self.available = 0
        return count

    def delete(self, error: Error) -> None:
        """End every link with `error`, drop every message."""
        super().delete(error)
        for consumer in list(self.consumers):
            consumer.evict(error)
        self.clear()

    def message_count(self) -> i64:
        """Available and held ones."""
        return self.available + self.acquired
