"""Resuming deliveries that a source has sent over an earlier link (AMQP 1.0 §2.6.13, §3.4.6).

Outcomes in the receiver's unsettled map are applied at once; the receiver is told when the
deliveries are resumed, which takes credit. Deliveries without an outcome are resumed from the
position of the receiver, with exactly the bytes that were sent before. If that is not possible they
are aborted, and the messages go back to the queue.

While one of the two maps is incomplete, no new delivery is sent. When all resumable deliveries have
ended, the broker detaches the link, which must be attached again with smaller maps.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i32, i64

from ferrymq.engine.delivery import OutgoingDelivery
from ferrymq.engine.resumption import Resolution
from ferrymq_broker.connections.outcomes import apply_outcome, is_terminal, symbol
from ferrymq_broker.nodes.entry import Entry
from ferrymq_broker.nodes.message import replace_start
from ferrymq_broker.nodes.outgoing_header import outgoing_header
from ferrymq_types.messaging import Received

if TYPE_CHECKING:
    from ferrymq_broker.connections.durable_links.source import SourceTerminus, UnsettledSend
    from ferrymq_broker.connections.link_ports import ConsumerPort
    from ferrymq_broker.connections.output import ConnectionOutput

# A message that can no longer be read could be resumed only from this position, which no receiver
# has reached.
_NOWHERE: Final = Received(section_number=0xFFFFFFFF, section_offset=0)


@final
class SourceResumption:
    """The deliveries that are still to be resumed on one attachment.

    `live` counts resumed deliveries without an outcome; `whole` is whether new deliveries may be
    sent.
    """

    __slots__ = ("endpoint", "output", "terminus", "whole", "live", "_todo")

    def __init__(
        self,
        endpoint: ConsumerPort,
        output: ConnectionOutput,
        terminus: SourceTerminus,
        unsettled: dict[bytes, OutgoingDelivery],
    ) -> None:
        self.endpoint: ConsumerPort = endpoint
        self.output: ConnectionOutput = output
        self.terminus: SourceTerminus = terminus
        self.live: i64 = 0
        resumption = endpoint.link.resumption
        self.whole: bool = resumption is None or resumption.whole
        self._todo: deque[OutgoingDelivery] = deque()
        if resumption is not None:
            for delivery in unsettled.values():
                if resumption.resolution(delivery) is not Resolution.WAIT:
                    self._todo.append(delivery)

    @property
    def over(self) -> bool:
        """Return whether the link needs no more resuming."""
        return self.whole and not self._todo

    @property
    def stuck(self) -> bool:
        """Return whether nothing more can be sent before the link is attached again."""
        return not self.whole and not self._todo

    def begin(self) -> bool:
        """Apply the outcomes in the receiver's map; return false if the source does not allow one
        of them."""
        endpoint = self.endpoint
        agreed = endpoint.outcomes
        for delivery in self._todo:
            state = delivery.remote_state
            entry = delivery.context
            if not isinstance(entry, Entry) or not is_terminal(state):
                continue
            if agreed is not None and symbol(state) not in agreed:
                return False
            delivery.context = None
            imposed = endpoint.imposed
            if imposed is not None:
                # The delivery gets the outcome of the source, not the outcome in the map.
                state = imposed
                delivery.state = imposed
            apply_outcome(endpoint.node, endpoint, entry, state)
            self.terminus.forget(delivery.tag)
        return True

    def proceed(self) -> None:
        """Resume deliveries, as far as credit and connection allow."""
        endpoint = self.endpoint
        link = endpoint.link
        output = self.output
        todo = self._todo
        while todo:
            if link.credit <= 0 or not link.usable:
                return
            if output.blocked:
                output.stall(endpoint)
                return
            if link.parked > 0:
                output.await_window(endpoint)
                return
            self._resume(todo.popleft())
            output.touch()
            output.limit()
        if not self.whole and self.live == 0:
            if link.parked > 0:
                output.await_window(endpoint)
            elif link.usable:
                # A detach without an error: both sides attach again with the remaining deliveries.
                link.detach(closed=False)
                output.touch()
                endpoint.close(False, False)

    def _resume(self, delivery: OutgoingDelivery) -> None:
        entry = delivery.context
        link = self.endpoint.link
        if not isinstance(entry, Entry):
            # The outcome of the delivery has been applied.
            link.resume(delivery)
            return
        sent = self.terminus.sent.get(delivery.tag)
        message = self.endpoint.node.message_of(entry)
        if sent is None or message is None:
            # The message cannot be read from disk.
            delivery.state = _NOWHERE
            resolution = link.resume(delivery)
        else:
            payload = sent_payload(entry, sent)
            resolution = link.resume(delivery, payload, message_format=message.format)
        if resolution is Resolution.CONTINUE:
            self.live += 1
        else:
            # The delivery is aborted: the receiver has more bytes than the broker can repeat.
            delivery.context = None
            self.endpoint.node.give_back(self.endpoint, entry, True, False)
            self.terminus.forget(delivery.tag)

    def on_outcome(self) -> None:
        """Count a resumed delivery that has ended, and continue."""
        if self.live > 0:
            self.live -= 1
        if not self.whole and self.live == 0 and not self.endpoint.closed:
            self.proceed()


def sent_payload(entry: Entry, sent: UnsettledSend) -> bytes:
    """Return the bytes of an earlier delivery of an entry."""
    attempts = entry.attempts
    entry.attempts = i32(0) if sent.first else i32(1)
    try:
        head = outgoing_header(entry, sent.left)
        message = entry.message
        return replace_start(message.payload, message.header_end, head) if head else message.payload
    finally:
        entry.attempts = attempts
