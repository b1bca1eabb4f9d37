"""The project's clients as exclusive readers of a stream, over loopback."""

from __future__ import annotations

import pytest

import ferrymq
from ferrymq_broker.config import Config
from ferrymq_broker.server import BrokerServer

CONFIG = Config.model_validate(
    {
        "listener": [{"url": "amqp://127.0.0.1:0"}],
        "stream": [
            {"name": "s", "partitions": 2, "consumer-groups": ["a"], "readers-per-group": 1}
        ],
    }
)


def own(epoch: int) -> dict[str, object]:
    return {"ferrymq:consumer-group": "a", "ferrymq:epoch": epoch}


async def test_a_higher_epoch_takes_the_place() -> None:
    async with (
        BrokerServer(CONFIG) as server,
        ferrymq.connect(server.url) as one,
        ferrymq.connect(server.url) as other,
    ):
        before = await one.receiver("s::0", start="first", properties=own(1))
        sender = await one.sender("s::0")
        await sender.send(b"0")
        assert (await before.receive(timeout=30)).message.body == b"0"
        with pytest.raises(ferrymq.LinkDetached) as refused:
            await other.receiver("s::0", properties=own(0))
        assert refused.value.condition == "ferrymq:epoch-too-low"
        after = await other.receiver("s::0", start="first", properties=own(2))
        with pytest.raises(ferrymq.LinkDetached) as stolen:
            await before.receive(timeout=30)
        assert stolen.value.condition == "amqp:link:stolen"
        assert (await after.receive(timeout=30)).message.body == b"0"


async def test_readers_of_chunks_count_too() -> None:
    async with BrokerServer(CONFIG) as server, ferrymq.connect(server.url) as connection:
        await (await connection.sender("s::1")).send(b"0")
        async with connection.chunk_reader("s::1", start="first") as chunks:
            assert (await chunks.receive(timeout=30)).count == 1
            with pytest.raises(ferrymq.LinkDetached) as refused:
                await connection.receiver("s")
            assert refused.value.condition == "amqp:resource-limit-exceeded"
            await connection.receiver("s::1", properties={"ferrymq:consumer-group": "a"})
            with pytest.raises(ferrymq.LinkDetached) as unknown:
                await connection.receiver("s", properties={"ferrymq:consumer-group": "b"})
            assert unknown.value.condition == "amqp:not-found"
