"""The client under uvloop, whose transports are not those of asyncio."""

from __future__ import annotations

import ssl

import pytest
import uvloop

import ferrymq
from ferrymq import Message
from ferrymq.engine import events
from tests.client.peer import Peer
from tests.client.test_connecting import CERTIFICATE


@pytest.mark.parametrize("secure", [False, True])
def test_messages_both_ways_and_a_loss(secure: bool) -> None:
    server = client = None
    if secure:
        server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        server.load_cert_chain(CERTIFICATE)
        client = ssl.create_default_context(cafile=str(CERTIFICATE))

    async def main() -> None:
        async with Peer(tls=server) as peer:
            peer.put("work", *range(50))
            async with ferrymq.connect(peer.url, ssl=client) as connection:
                async with connection.sender("orders") as sender:
                    await sender.send(Message(b"x" * 500_000), timeout=10)
                    await sender.send_many([Message(i) for i in range(50)], timeout=10)
                receiver = await connection.receiver("work")
                for expected in range(50):
                    delivery = await receiver.receive(timeout=10)
                    assert delivery.message.body == expected
                    await delivery.accept()
            await peer.seen(events.OutcomeReceived, 50)
            assert len(peer.received["orders"]) == 51
            connection = await ferrymq.connect(peer.url, ssl=client)
            peer.connection.transport.abort()
            with pytest.raises(ferrymq.ConnectionClosed):
                await connection.wait_closed(timeout=10)

    uvloop.run(main())
