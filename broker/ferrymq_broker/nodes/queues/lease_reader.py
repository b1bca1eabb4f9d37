"""A reader of a lease: it sends a link copies of leased messages, by their positions in the lease.

A message is sent as it was published, with the delivery-count of this delivery: every reading gives
the same bytes. `LeaseChunkReader` sends many in one transfer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from ferrymq_broker.nodes.consumer import IDLE, UNFIT, Consumer
from ferrymq_broker.nodes.entry import ACQUIRED, Entry
from ferrymq_broker.nodes.message import BrokerMessage
from ferrymq_broker.nodes.node import Node
from ferrymq_broker.nodes.outgoing_header import delivered_before
from ferrymq_types.transport import Error

if TYPE_CHECKING:
    from ferrymq_broker.nodes.queues.entries import QueueEntries
    from ferrymq_broker.nodes.queues.lease import QueueLease
    from ferrymq_broker.nodes.queues.lease_terms import LeaseTerms
    from ferrymq_broker.nodes.queues.leases import QueueLeases

# How many messages are sent in one turn.
_MESSAGES: Final = 256


class LeaseReader(Node):
    """The node that one link consumes from: the messages of `lease` from the position `at` to
    before `until`.

    This reader sends messages one by one. `parked` is true while a reader waits for a pass of its
    own.
    """

    __slots__ = (
        "lease",
        "consumer",
        "at",
        "until",
        "parked",
        "_leases",
        "_entries",
        "_entry",
        "_draining",
    )

    def __init__(
        self, leases: QueueLeases, entries: QueueEntries, lease: QueueLease, terms: LeaseTerms
    ) -> None:
        super().__init__(leases.node.address, leases.node.space)
        self.lease: QueueLease = lease
        self.consumer: Consumer | None = None
        end: i64 = len(lease.entries)
        self.until: i64 = end if terms.until < 0 or terms.until > end else terms.until
        self.at: i64 = terms.first if terms.first < self.until else self.until
        self.parked: bool = False
        self._leases = leases
        self._entries = entries
        # The entry that is shown to the consumer: always the same one, because copies are not held.
        self._entry: Entry | None = None
        self._draining = False

    @property
    def kind(self) -> str:
        """``reader``."""
        return "reader"

    # -- the consumer ----------------------------------------------------------------------

    def subscribe(self, consumer: Consumer) -> None:
        """Begin to read for a link."""
        self.consumer = consumer
        self._leases.readers[self] = None

    def unsubscribe(self, consumer: Consumer) -> None:
        """Forget the link, which is gone."""
        if self.consumer is None:
            return
        self.consumer = None
        self._draining = False
        self._leases.readers.pop(self, None)
        self._entry = None

    def wake(self, consumer: Consumer) -> None:
        """Continue reading: the link has credit, or its connection takes bytes again."""
        consumer.ready = True
        self.touch()

    def count_available(self, consumer: Consumer) -> i64:
        """Return the number of messages that the link has not been offered."""
        return self.until - self.at

    def want_drained(self, consumer: Consumer) -> None:
        """Tell the client when there is no more, because it asked for a drain (AMQP 1.0 §2.6.7)."""
        self._draining = True
        self.touch()

    def stop(self, error: Error) -> None:
        """End the link, which cannot continue."""
        consumer = self.consumer
        if consumer is not None:
            consumer.evict(error)
            # Whatever the link does, the reader stops.
            self.unsubscribe(consumer)

    # -- reading ---------------------------------------------------------------------------

    def dispatch(self) -> None:
        """Send some of the messages."""
        consumer = self.consumer
        if consumer is None:
            return
        ended = False
        if consumer.ready and not self.parked:
            ended = self.read(consumer)
            if self.consumer is None:
                return
        if self._draining and (ended or not consumer.ready):
            self._draining = not consumer.nothing_left()

    def read(self, consumer: Consumer) -> bool:
        """Send messages to the consumer, which is ready; return whether none is left."""
        turns: i64 = _MESSAGES
        while self.at < self.until:
            if turns == 0:
                self.touch()
                return False
            turns -= 1
            message = self.message()
            if message is not None:
                verdict = consumer.deliver(self.shown(message))
                if verdict == IDLE:
                    consumer.ready = False
                    return False
                if verdict == UNFIT:
                    self.give_up(len(message.payload))
                    return False
            self.at += 1
        return True

    def message(self) -> BrokerMessage | None:
        """Return the message at the position, as it is sent. A message that cannot be read leaves
        the lease, and is kept from all consumers: None."""
        entry = self.lease.entries[self.at]
        if entry.state != ACQUIRED:
            return None
        message = self._entries.read_message(entry)
        if message is None:
            self._entries.set_aside_held(entry)
            return None
        return delivered_before(message, i64(entry.failures))

    def shown(self, message: BrokerMessage) -> Entry:
        """Return the entry that shows a message to the consumer."""
        entry = self._entry
        if entry is None:
            entry = Entry(message, self.at)
            self._entry = entry
        else:
            entry.message = message
            entry.renumber(self.at)
        return entry

    def give_up(self, size: i64) -> None:
        """End the link, because a message is larger than the client accepts."""
        self.stop(
            Error(
                condition="amqp:link:message-size-exceeded",
                description=f"a message of the lease has {size} bytes, more than the "
                "max-message-size of the link",
            )
        )
