"""What is played to the servers of `oracle`: every script ends with the thing to be judged."""

from __future__ import annotations

from typing import Any

from ferrymq_types.messaging import Accepted, Source, Target
from ferrymq_types.transport import (
    Attach,
    Close,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Open,
    Role,
    SenderSettleMode,
)
from tests.support.scenes import peer_attach, peer_begin, peer_flow, transfer
from tests.support.script import AMQP_HEADER, encode, frame, on

OPEN = Open(container_id="client")
BEGIN = peer_begin()
OPENED: list[object] = [AMQP_HEADER, OPEN]
BEGUN: list[object] = [*OPENED, BEGIN]
MESSAGE = b"\x00\x53\x75\xa0\x01m"


def sender(name: str = "link", handle: int = 0, **fields: Any) -> Attach:
    """The client attaches to send."""
    return peer_attach(name, handle, Role.SENDER, **fields)


def receiver(name: str = "link", handle: int = 0, **fields: Any) -> Attach:
    """The client attaches to receive."""
    return peer_attach(name, handle, Role.RECEIVER, **fields)


SENDING: list[object] = [*BEGUN, sender()]
RECEIVING: list[object] = [*BEGUN, receiver()]


def message(handle: int, id: int | None, tag: bytes | None = b"tag", **fields: Any) -> object:
    """A transfer with a small message."""
    return on(0, transfer(handle, id, tag, **fields), MESSAGE)


def padded(size: int) -> bytes:
    """A frame of `size` bytes that is otherwise a good open."""
    body = encode(Open(container_id="x" * (size - 8 - 30)))
    return frame(body + bytes(size - 8 - len(body)))


SCRIPTS: dict[str, list[object]] = {
    # Headers and frames
    "another protocol": [b"HTTP/1.1"],
    "amqp 0-9-1": [b"AMQP\x00\x00\x09\x01"],
    "version 1.1.0": [b"AMQP\x00\x01\x01\x00"],
    "frame of 7 bytes": [AMQP_HEADER, frame(b"", size=7)],
    "data offset 1": [AMQP_HEADER, frame(encode(OPEN), doff=1)],
    "data offset beyond the frame": [AMQP_HEADER, frame(encode(OPEN), doff=200)],
    "extended header": [AMQP_HEADER, frame(bytes(4) + encode(OPEN), doff=3)],
    "frame type 5": [*OPENED, frame(encode(BEGIN), type=5)],
    "sasl frame after the open": [*OPENED, frame(encode(BEGIN), type=1)],
    "frame above our max-frame-size": [*BEGUN, frame(encode(peer_flow()) + bytes(5000))],
    "empty frame": [*OPENED, frame(b"")],
    "empty frame on a channel above channel-max": [*OPENED, frame(b"", channel=99)],
    "bytes after a begin": [*OPENED, frame(encode(BEGIN) + b"\x00\x00")],
    "unknown descriptor": [*OPENED, frame(b"\x00\x53\x99\x45")],
    "no descriptor": [*OPENED, frame(b"\x45")],
    "list cut short": [*OPENED, frame(encode(BEGIN)[:-3])],
    "field of another type": [*OPENED, frame(b"\x00\x53\x11\xc0\x03\x01\xa1\x00")],
    "null behind the last field": [
        *OPENED,
        frame(b"\x00\x53\x11\xc0\x0d\x0a\x40\x43\x52\x64\x52\x64\x40\x40\x40\x40\x40\x40"),
    ],
    "value behind the last field": [
        *OPENED,
        frame(b"\x00\x53\x11\xc0\x0d\x0a\x40\x43\x52\x64\x52\x64\x40\x40\x40\x40\x40\x41"),
    ],
    # Connections
    "begin before the open": [AMQP_HEADER, BEGIN],
    "close before the open": [AMQP_HEADER, Close()],
    "second open": [*OPENED, OPEN],
    "open without container-id": [AMQP_HEADER, frame(b"\x00\x53\x10\x45")],
    "open on channel 1": [AMQP_HEADER, on(1, OPEN)],
    "max-frame-size below 512": [AMQP_HEADER, Open(container_id="client", max_frame_size=100)],
    "close": [*OPENED, Close()],
    "close with an error": [*OPENED, Close(error=Error(condition="amqp:internal-error"))],
    "begin after the close": [*OPENED, Close(), BEGIN],
    # Sessions
    "begin above channel-max": [*OPENED, on(11, BEGIN)],
    "second begin on a channel": [*BEGUN, BEGIN],
    "begin in answer to none": [*OPENED, peer_begin(5)],
    "end without a session": [*OPENED, End()],
    "flow without a session": [*OPENED, peer_flow()],
    "attach without a session": [*OPENED, sender()],
    "transfer without a session": [*OPENED, message(0, 0)],
    "end": [*BEGUN, End()],
    "begin on a channel that was ended": [*BEGUN, End(), BEGIN],
    "attach after the end": [*BEGUN, End(), sender()],
    "echo": [*BEGUN, peer_flow(echo=True)],
    "flow without next-incoming-id": [
        *BEGUN,
        Flow(incoming_window=9, next_outgoing_id=0, outgoing_window=9),
    ],
    # Links
    "attach": [*BEGUN, sender()],
    "attach above handle-max": [*BEGUN, sender(handle=0xFFFFFFF0)],
    "handle in use": [*SENDING, sender("other", 0)],
    "name in use": [*SENDING, sender("link", 1)],
    "same name, other role": [*SENDING, receiver("link", 1)],
    "name in use on another session": [*SENDING, on(1, BEGIN), on(1, sender("link", 0))],
    "sender without initial-delivery-count": [
        *BEGUN,
        Attach(
            name="link", handle=0, role=Role.SENDER, source=Source(), target=Target(address="to")
        ),
    ],
    "snd-settle-mode 7": [*BEGUN, frame(b"\x00\x53\x12\xc0\x09\x05\xa1\x01l\x43\x41\x50\x07\x40")],
    "detach of an unknown handle": [*BEGUN, Detach(handle=4, closed=True)],
    "flow for an unknown handle": [*BEGUN, peer_flow(handle=4, delivery_count=0, link_credit=1)],
    "transfer for an unknown handle": [*BEGUN, message(4, 0)],
    "detach, not closed": [*SENDING, Detach(handle=0)],
    "detach, closed": [*SENDING, Detach(handle=0, closed=True)],
    "second detach": [*SENDING, Detach(handle=0, closed=True), Detach(handle=0, closed=True)],
    "transfer after the detach": [*SENDING, Detach(handle=0, closed=True), message(0, 0)],
    "drain of a sender without messages": [
        *RECEIVING,
        peer_flow(handle=0, delivery_count=0, link_credit=5, drain=True),
    ],
    # Deliveries
    "transfer": [*SENDING, message(0, 0)],
    "transfer without delivery-id": [*SENDING, message(0, None)],
    "transfer without delivery-tag": [*SENDING, message(0, 0, None)],
    "delivery-tag of 33 bytes": [*SENDING, message(0, 0, b"t" * 33)],
    "transfer to a sender": [*RECEIVING, message(0, 0)],
    "transfer beyond the credit": [
        *SENDING,
        message(0, 0, b"0"),
        message(0, 1, b"1"),
        message(0, 2, b"2"),
    ],
    "delivery-id in use": [*SENDING, message(0, 0, b"0"), message(0, 0, b"1")],
    "delivery-id that leaves a gap": [*SENDING, message(0, 0, b"0"), message(0, 7, b"1")],
    "delivery-tag in use": [*SENDING, message(0, 0), message(0, 1)],
    "other delivery-id inside a delivery": [*SENDING, message(0, 0, more=True), message(0, 1)],
    "other delivery-tag inside a delivery": [
        *SENDING,
        message(0, 0, more=True),
        message(0, 0, b"other"),
    ],
    "abort": [*SENDING, message(0, 0, more=True), on(0, transfer(0, None, None, aborted=True))],
    "settled in mode unsettled": [
        *BEGUN,
        sender(snd_settle_mode=SenderSettleMode.UNSETTLED),
        message(0, 0, settled=True),
    ],
    "unsettled in mode settled": [
        *BEGUN,
        sender(snd_settle_mode=SenderSettleMode.SETTLED),
        message(0, 0),
    ],
    "resumed, but not known": [*SENDING, message(0, 0, resume=True)],
    "disposition of unknown deliveries": [
        *SENDING,
        Disposition(role=Role.SENDER, first=5, last=9, settled=True),
    ],
    "disposition that ends before it begins": [
        *SENDING,
        message(0, 0),
        Disposition(role=Role.SENDER, first=3, last=1, settled=True, state=Accepted()),
    ],
}
