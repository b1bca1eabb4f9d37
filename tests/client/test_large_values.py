"""Values of many elements: what is sent can be read."""

from __future__ import annotations

import pytest

import ferrymq
from ferrymq import Message
from ferrymq.engine import events
from ferrymq_codec import Array, DecodeError, PairMap
from tests.client.peer import Peer

LARGE: dict[str, object] = {
    "list": list(range(65_537)),
    "array": Array("double", [n / 4 for n in range(100_000)]),
    "map": dict.fromkeys(range(33000)),
    "negative": [{-1: "a", -2: "b"}] * 100,
    "pairs": [PairMap([(1, "a"), (True, "b")])] * 100,
}


@pytest.mark.spec("1.6.22", "1.6.23", "1.6.24")
@pytest.mark.parametrize("value", LARGE.values(), ids=LARGE)
async def test_what_is_sent_can_be_read(
    peer: Peer, connection: ferrymq.Connection, value: object
) -> None:
    async with connection.sender("out") as sender:
        await sender.send(Message(value))
    assert peer.received["out"][0].body == value
    peer.put("in", value)
    async for delivery in connection.receiver("in"):
        assert delivery.message.body == value
        await delivery.accept()
        break


@pytest.mark.spec("1.6.24")
def test_a_million_doubles_can_be_read() -> None:
    value = Array("double", [n / 4 for n in range(1_000_000)])
    assert Message.decode(Message(value).encode()).body == value


def test_the_memory_of_a_decoded_message_has_a_bound_of_ones_own() -> None:
    data = Message([None] * 1000).encode()
    assert Message.decode(data, max_memory=64_000).body == [None] * 1000
    with pytest.raises(DecodeError, match="too many elements"):
        Message.decode(data, max_memory=63_999)


@pytest.mark.spec("2.7.3")
async def test_a_frame_may_have_as_many_elements_as_bytes() -> None:
    properties: dict[str, object] = {"numbers": Array("boolean", [True] * 70_000)}
    large = 1 << 20
    async with (
        Peer(max_frame_size=large) as peer,
        ferrymq.connect(peer.url, max_frame_size=large) as connection,
    ):
        await connection.sender("out", properties=properties)
        attach = (await peer.seen(events.AttachReceived)).link.remote_attach
        assert attach is not None and attach.properties == properties
