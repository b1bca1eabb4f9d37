"""What two users at the ends of a wire know of their messages, and what must hold of them.

A `Stream` is one direction of messages under one link name, for as long as the play goes on: its
links come and go, are suspended, closed and resumed, and so do sessions and connections under
them. A `Record` is one message. Of every message it is known whether it may be lost (it was sent
settled and its link was lost, or its sender gave it up) and whether it may come twice (the
receiver settled it, the sender never heard, and resumed it); in any other case it comes once, and
all come in the order they were sent.
"""

from __future__ import annotations

import struct

from ferrymq.engine import IncomingDelivery, OutgoingDelivery, ReceiverLink, SenderLink
from ferrymq_types.transport import ReceiverSettleMode, SenderSettleMode
from ferrymq_types.unions import DeliveryState

_FILL = bytes(range(256)) * 32
_SIZES = struct.Struct(">II")


class Record:
    """One message: what its sender did with it and what its receiver made of it."""

    __slots__ = ("stream", "number", "size", "received", "may_lose", "forgotten", "resent", "told")

    def __init__(self, stream: Stream, number: int, size: int) -> None:
        self.stream = stream
        self.number = number
        self.size = size
        self.received = False
        # Nobody has to deliver it any more.
        self.may_lose = False
        # The receiver has settled it, and would not know it again.
        self.forgotten = False
        # The sender has sent it again, or a part of it.
        self.resent = False
        # The states its receiver has given it.
        self.told: list[DeliveryState] = []

    def __repr__(self) -> str:
        return f"<message {self.number} of {self.stream}>"

    @property
    def tag(self) -> bytes:
        """Its delivery-tag."""
        return self.number.to_bytes(4, "big")

    @property
    def payload(self) -> bytes:
        """Two data sections: who it is, and bytes that tell one offset from another."""
        start = self.number % 256
        head = b"\x00\x53\x75\xa0\x08" + _SIZES.pack(self.stream.index, self.number)
        return head + b"\x00\x53\x75\xb0" + self.size.to_bytes(4, "big") + _FILL[
            start : start + self.size
        ]  # fmt: skip


class SenderEnd:
    """The sending end of a stream."""

    def __init__(self, stream: Stream, side: int) -> None:
        self.stream = stream
        self.side = side
        self.link: SenderLink | None = None
        # Unsettled, by number; `waiting` are those the current link has to resume first.
        self.pending: dict[int, OutgoingDelivery] = {}
        self.waiting: list[int] = []
        # Settled by us before the receiver said anything: lost if the link is.
        self.unconfirmed: list[Record] = []
        # Told an outcome that we have not answered yet.
        self.owed: list[OutgoingDelivery] = []

    def unsettled(self) -> dict[bytes, OutgoingDelivery]:
        """What to resume with, and from now on to be resumed."""
        self.waiting = sorted(self.pending)
        return {self.pending[number].tag: self.pending[number] for number in self.waiting}

    def done(self, delivery: OutgoingDelivery) -> None:
        """The delivery is settled here."""
        record = delivery.context
        assert isinstance(record, Record)
        self.pending.pop(record.number, None)
        if record.number in self.waiting:
            # Its receiver was heard before it could be resumed.
            self.waiting.remove(record.number)

    def lost(self) -> None:
        """The link is gone."""
        link, self.link = self.link, None
        self.waiting = []
        for record in self.unconfirmed:
            if not record.received:
                record.may_lose = True
        self.unconfirmed = []
        if link is not None and (link.local_closed or link.remote_closed):
            for delivery in self.pending.values():
                assert isinstance(delivery.context, Record)
                delivery.context.may_lose = True
            self.pending = {}
            self.owed = []


class ReceiverEnd:
    """The receiving end of a stream."""

    def __init__(self, stream: Stream, side: int) -> None:
        self.stream = stream
        self.side = side
        self.link: ReceiverLink | None = None
        self.unsettled: dict[bytes, IncomingDelivery] = {}

    def lost(self) -> None:
        """The link is gone. A message that was under way stays, as far as it has come."""
        link, self.link = self.link, None
        assert link is not None
        partial = link.partial
        if partial is not None and not partial.remote_settled and not partial.ignored:
            partial.context = self.stream.records[int.from_bytes(partial.tag, "big")]
            self.unsettled[partial.tag] = partial
        if link.local_closed or link.remote_closed:
            for delivery in self.unsettled.values():
                assert isinstance(delivery.context, Record)
                delivery.context.forgotten = True
            self.unsettled = {}


class Stream:
    """Messages in one direction under one name, over all links that ever carry them."""

    def __init__(
        self, index: int, sender: int, snd: SenderSettleMode, rcv: ReceiverSettleMode
    ) -> None:
        self.index = index
        self.name = f"link-{index % 6}"
        self.snd = snd
        self.rcv = rcv
        self.records: list[Record] = []
        self.sender = SenderEnd(self, sender)
        self.receiver = ReceiverEnd(self, 1 - sender)
        self._last = -1

    def __repr__(self) -> str:
        return f"<{self.name} from side {self.sender.side}, {self.snd.name}, {self.rcv.name}>"

    def send(self, size: int, settled: bool) -> None:
        """Send the next message."""
        end = self.sender
        link = end.link
        assert link is not None
        record = Record(self, len(self.records), size)
        self.records.append(record)
        delivery = link.send(record.payload, tag=record.tag, settled=settled)
        delivery.context = record
        if delivery.settled:
            end.unconfirmed.append(record)
        else:
            end.pending[record.number] = delivery

    def arrived(self, delivery: IncomingDelivery) -> None:
        """A message is whole at the receiver."""
        payload = delivery.payload
        index, number = _SIZES.unpack_from(payload, 5)
        assert index == self.index, f"a message of stream {index} on {self}"
        record = self.records[number]
        assert payload == record.payload, f"{record} has other bytes"
        assert delivery.tag == record.tag
        if record.received:
            assert record.forgotten and record.resent, f"{record} came twice"
            record.forgotten = record.resent = False
        else:
            assert number > self._last, f"{record} came after number {self._last}"
            self._last = number
            record.received = True
        delivery.context = record
        if not delivery.remote_settled:
            self.receiver.unsettled[delivery.tag] = delivery

    def settle(self, delivery: IncomingDelivery, state: DeliveryState) -> None:
        """The receiver decides."""
        record = delivery.context
        assert isinstance(record, Record)
        record.told.append(state)
        delivery.settle(state)
        if delivery.settled:
            self.settled(delivery)

    def settled(self, delivery: IncomingDelivery) -> None:
        """The delivery is settled at the receiver."""
        self.receiver.unsettled.pop(delivery.tag, None)
        if isinstance(delivery.context, Record):
            delivery.context.forgotten = True

    def check_complete(self) -> None:
        """Once the sender has nothing left to do: nothing is missing."""
        for record in self.records:
            assert record.received or record.may_lose, f"{record} is lost"
