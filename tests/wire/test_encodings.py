"""What is read and written of every type, byte by byte, by the broker and by the client.

Each encoding of a value goes in, and comes back in the shortest (AMQP 1.0 §1.2, §1.6).
"""

from __future__ import annotations

import pytest

import ferrymq
from ferrymq import Message
from tests.raw.client import Client
from tests.raw.frames import disposition_frame, flow_frame, transfer_frame
from tests.raw.server import Server
from tests.raw.values import (
    FALSE,
    TRUE,
    binary,
    composite,
    data_section,
    mapping,
    symbol,
    uint,
)
from tests.wire.control import ACCEPTED, amqp_value
from tests.wire.encodings import ENCODINGS, MALFORMED, Forms, in_a_list

PATIENCE = 20


@pytest.mark.spec("1.6")
@pytest.mark.parametrize("values", ENCODINGS.values(), ids=ENCODINGS)
def test_the_broker_reads_every_encoding_and_writes_the_shortest(
    peer: Client, address: str, values: list[Forms]
) -> None:
    """The annotations of the outcome modified are put into the message, which comes again."""
    peer.sender(address).publish([data_section()]).receiver(address)
    number = peer.arrivals(1)[0].field(1)
    for shortest, others in values:
        for encoded in (shortest, *others):
            assert isinstance(number, int)
            annotations = mapping(symbol("x-opt-value"), encoded)
            outcome = composite(0x27, [FALSE, FALSE, annotations])
            peer.send(disposition_frame(number, settled=TRUE, state=outcome))
            (again,) = peer.arrivals(1)
            assert symbol("x-opt-value") + shortest in again.payload
            number = again.field(1)


@pytest.mark.spec("1.6")
@pytest.mark.parametrize("malformed", MALFORMED.values(), ids=MALFORMED)
def test_the_broker_refuses_what_no_type_has(peer: Client, address: str, malformed: bytes) -> None:
    outcome = composite(0x27, [FALSE, FALSE, mapping(symbol("x-opt-value"), malformed)])
    peer.send(disposition_frame(0, settled=TRUE, state=outcome))
    assert peer.verdict()[:2] == ("connection", "amqp:decode-error")
    peer.close()


@pytest.mark.spec("1.6")
@pytest.mark.parametrize("values", ENCODINGS.values(), ids=ENCODINGS)
async def test_the_client_reads_every_encoding_and_writes_the_shortest(
    values: list[Forms],
) -> None:
    sent = [encoded for shortest, others in values for encoded in (shortest, *others)]
    expected = [form.shortest for form in values for _ in (form.shortest, *form.others)]

    def script(server: Server) -> None:
        with server.accept().begin() as peer:
            peer.attached()
            peer.attached()
            peer.expect("flow", "empty")
            for number, encoded in enumerate(sent):
                body = amqp_value(in_a_list(encoded))
                tag = binary(b"%d" % number)
                peer.send(transfer_frame(body, 1, uint(number), tag, settled=TRUE))
            for shortest in expected:
                # As it came, in the shortest form.
                arrived = peer.expect("transfer", "flow", "empty")
                assert arrived.payload == b"\x00\x53\x77" + in_a_list(shortest)
                delivery_id = arrived.field(1)
                assert isinstance(delivery_id, int)
                peer.send(disposition_frame(delivery_id, settled=TRUE, state=ACCEPTED))
            peer.finish()

    with Server(script) as server:
        async with ferrymq.connect(server.url) as connection:
            sender = await connection.sender("there")
            receiver = await connection.receiver("back")
            for _ in sent:
                delivery = await receiver.receive(timeout=PATIENCE)
                await sender.send(Message(delivery.message.body), timeout=PATIENCE)


@pytest.mark.spec("1.6")
@pytest.mark.parametrize("malformed", MALFORMED.values(), ids=MALFORMED)
async def test_the_client_refuses_what_no_type_has(malformed: bytes) -> None:
    def script(server: Server) -> None:
        with server.accept().begin() as peer:
            peer.send(flow_frame(properties=mapping(symbol("x"), malformed)))
            assert peer.expect("close", "attach", "flow", "empty").condition == "amqp:decode-error"

    with Server(script) as server, pytest.raises(ferrymq.ConnectionClosed):
        async with ferrymq.connect(server.url) as connection:
            await connection.receiver("back")
