"""Messages that our client receives and sends on: byte for byte what they were (AMQP 1.0 §3.2)."""

from __future__ import annotations

import pytest

from ferrymq import Message, blocking
from tests.raw.client import Client
from tests.raw.frames import transfer_frame
from tests.raw.process import Broker
from tests.raw.values import binary, uint
from tests.wire.control import exchange, waiting

# In the shortest encoding, which is that of our encoder.
BODY = b"\x00\x53\x75\xa0\x01x"
MESSAGES = {
    "empty-sections": (
        b"\x00\x53\x70\x45\x00\x53\x72\xc1\x01\x00\x00\x53\x73\x45\x00\x53\x74\xc1\x01\x00"
        + BODY
        + b"\x00\x53\x78\xc1\x01\x00"
    ),
    "no-body": b"\x00\x53\x73\xc0\x04\x01\xa1\x01i",
    "signalling-nan": b"\x00\x53\x77\x72\x7f\xa0\x00\x01",
    "quiet-nan-of-a-sign": b"\x00\x53\x77\x72\xff\xc1\x23\x45",
    "signalling-double": b"\x00\x53\x77\x82\x7f\xf4\x00\x00\x00\x00\x00\x01",
    "order": b"\x00\x53\x77\xc1\x0b\x04\xa1\x01b\x55\x01\xa1\x01a\x55\x02",
    "keys-that-are-equal-in-python": b"\x00\x53\x77\xc1\x06\x04\x55\x01\x40\x41\x40",
}


@pytest.mark.spec("1.6.11", "1.6.12", "1.6.23", "3.2")
@pytest.mark.parametrize("payload", MESSAGES.values(), ids=MESSAGES)
def test_a_message_is_sent_on_as_it_came(
    peer: Client, broker: Broker, address: str, payload: bytes
) -> None:
    peer.sender(address)
    exchange(peer, transfer_frame(payload, 0, uint(0), binary(b"t")))
    onward = f"{address}-onward"
    with (
        blocking.connect(f"amqp://127.0.0.1:{broker.port}") as connection,
        connection.receiver(address) as receiver,
        connection.sender(onward) as sender,
    ):
        delivery = receiver.receive(timeout=20)
        assert delivery.payload == payload
        sender.send(Message.decode(delivery.payload))
        delivery.accept()
    assert waiting(broker.port, onward) == [payload]
