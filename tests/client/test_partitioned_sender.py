"""Sending to a stream whose partitions are on several brokers."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path
from zlib import crc32

import pytest

import ferrymq
from ferrymq import Message
from ferrymq_broker.values.policy import StreamPolicy
from ferrymq_codec.scalars import Timestamp, UInt
from tests.client.keeper import POLICY
from tests.support.spread_brokers import STREAM, SpreadBrokers


@pytest.fixture
async def brokers() -> AsyncIterator[SpreadBrokers]:
    async with SpreadBrokers(2) as made:
        yield made


async def bodies(connection: ferrymq.Connection, partition: int, count: int) -> list[object]:
    """The first records of a partition, in order."""
    address = f"{STREAM}::{partition}"
    found: list[object] = []
    async for chunk in connection.chunk_reader(address, start=0, until=count):
        found += [Message.decode(chunk.payload(at)).body for at in range(len(chunk))]
    return found


@pytest.mark.parametrize("first", [0, 1])
async def test_keys_find_their_partitions_wherever_the_client_connects(
    brokers: SpreadBrokers, first: int
) -> None:
    keys = [f"key-{number}" for number in range(12)]
    expected: dict[int, list[object]] = defaultdict(list)
    async with ferrymq.connect(brokers.urls[first]) as connection:
        async with connection.partitioned_sender(STREAM) as sender:
            assert sender.partitions == 4
            for turn in range(3):
                for key in keys:
                    await sender.send(Message(f"{key}:{turn}", group_id=key))
                    expected[crc32(key.encode()) % 4].append(f"{key}:{turn}")
        assert brokers.counts() == [len(expected[number]) for number in range(4)]
        for number in range(4):
            wanted = expected[number]
            assert await bodies(connection, number, len(wanted)) == wanted


async def test_calls_at_the_same_time_keep_the_order_of_a_key(brokers: SpreadBrokers) -> None:
    async with ferrymq.connect(brokers.urls[0]) as connection:
        sender = await connection.partitioned_sender(STREAM)
        annotations = {"x-opt-partition-key": b"k"}
        await asyncio.gather(
            *(
                sender.send(Message(str(number), message_annotations=annotations))
                for number in range(50)
            )
        )
        partition = crc32(b"k") % 4
        assert await bodies(connection, partition, 50) == [str(number) for number in range(50)]


async def test_many_messages_and_messages_without_keys(brokers: SpreadBrokers) -> None:
    async with ferrymq.connect(brokers.urls[1]) as connection:
        sender = await connection.partitioned_sender(STREAM)
        await sender.send_many([str(number) for number in range(40)])
        assert brokers.counts() == [10] * 4
        number = Message("x", message_annotations={"x-opt-partition": UInt(2)})
        await sender.send(number)
        assert brokers.counts() == [10, 10, 11, 10]
        # One connection for each other broker, whatever the number of links.
        assert [len(server.connections) for server in brokers.servers] == [1, 1]


@pytest.mark.parametrize(
    ("annotations", "error"),
    [
        ({"x-opt-partition": UInt(4)}, ValueError),
        ({"x-opt-partition": -1}, ValueError),
        ({"x-opt-partition": "1"}, TypeError),
        ({"x-opt-partition": True}, TypeError),
        ({"x-opt-partition": Timestamp(1)}, TypeError),
        ({"x-opt-partition-key": 17}, TypeError),
    ],
)
async def test_what_names_no_partition_is_an_error(
    brokers: SpreadBrokers, annotations: dict[str | int, object], error: type[Exception]
) -> None:
    async with ferrymq.connect(brokers.urls[0]) as connection:
        sender = await connection.partitioned_sender(STREAM)
        with pytest.raises(error, match="x-opt-partition"):
            await sender.send(Message("x", message_annotations=annotations))


async def test_a_stream_on_one_broker_needs_one_link_until_others_have_partitions_too(
    brokers: SpreadBrokers,
) -> None:
    placement = [f"0-2 {brokers.urls[0]}", f"3-4 {brokers.urls[1]}"]
    async with (
        ferrymq.connect(brokers.urls[0]) as connection,
        ferrymq.connect(brokers.urls[1]) as other,
        connection.management() as here,
        other.management() as there,
    ):
        await here.create("stream", "alone", {"partitions": 3})
        sender = await connection.partitioned_sender("alone")
        assert sender.partitions is None
        await sender.send_many(["a", "b", "c"])
        await there.create("stream", "alone", {"partitions-on": placement})
        await here.update("stream", "alone", {"partitions-on": placement})
        # The broker has ended the link before it has answered.
        await sender.send_many(["d"] * 5)
        assert sender.partitions == 5
        counts = [(await one.read("stream", "alone"))["records"] for one in (here, there)]
        assert counts == [6, 2]


async def test_the_whole_stream_has_no_other_links(brokers: SpreadBrokers) -> None:
    async with ferrymq.connect(brokers.urls[0]) as connection:
        for opening in (connection.sender(STREAM), connection.receiver(STREAM)):
            with pytest.raises(ferrymq.LinkDetached, match="partitioned_sender") as caught:
                await opening
            assert caught.value.condition == "amqp:not-allowed"


async def test_an_address_without_a_stream_is_an_error(brokers: SpreadBrokers) -> None:
    async with ferrymq.connect(brokers.urls[0]) as connection:
        with pytest.raises(ferrymq.LinkDetached, match="not-found"):
            await connection.partitioned_sender("$none")


async def test_without_redirects_only_the_partitions_here_get_messages(
    brokers: SpreadBrokers,
) -> None:
    async with ferrymq.connect(brokers.urls[0], follow_redirects=False) as connection:
        sender = await connection.partitioned_sender(STREAM)
        await sender.send(Message("x", message_annotations={"x-opt-partition": 1}))
        with pytest.raises(ferrymq.LinkDetached, match=brokers.urls[1]):
            await sender.send(Message("x", message_annotations={"x-opt-partition": 2}))


async def test_a_transaction_is_on_one_broker(brokers: SpreadBrokers) -> None:
    async with ferrymq.connect(brokers.urls[0]) as connection:
        sender = await connection.partitioned_sender(STREAM)
        async with connection.transaction() as work:
            here = Message("x", message_annotations={"x-opt-partition": 1})
            await sender.send(here, transaction=work)
            there = Message("x", message_annotations={"x-opt-partition": 3})
            with pytest.raises(
                ferrymq.LocalProtocolError, match=f"connection, to {brokers.urls[1]}"
            ):
                await sender.send(there, transaction=work)
        assert brokers.counts() == [0, 1, 0, 0]


async def test_partitions_that_are_added_get_messages() -> None:
    async with SpreadBrokers(2) as brokers, ferrymq.connect(brokers.urls[0]) as connection:
        sender = await connection.partitioned_sender(STREAM, placement_max_age=0)
        await sender.send_many(["x"] * 4)
        more = (*brokers.placement(), f"4-5 {brokers.urls[0]}")
        for number in range(2):
            brokers.stream(number).change_policy(StreamPolicy(partitions=6, partitions_on=more))
        await sender.send_many(["x"] * 12)
        assert sender.partitions == 6
        assert brokers.counts()[4:] == [2, 2]


async def test_exactly_once_through_a_restart_of_one_broker(tmp_path: Path) -> None:
    async with (
        SpreadBrokers(2, folder=tmp_path) as brokers,
        ferrymq.connect(brokers.urls[0], container_id="till", reconnect=POLICY) as connection,
    ):
        sender = await connection.partitioned_sender(STREAM, name="out", exactly_once=True)
        await sender.send_many([str(number) for number in range(20)])
        await brokers.servers[1].close()
        sending = asyncio.gather(*(sender.send(f"{number}") for number in range(20, 40)))
        brokers.servers[1] = await brokers.make(1)
        await asyncio.wait_for(sending, 30)
        assert brokers.counts() == [10] * 4


async def test_the_other_brokers_go_on_if_the_first_is_lost(brokers: SpreadBrokers) -> None:
    async with ferrymq.connect(brokers.urls[0]) as connection:
        sender = await connection.partitioned_sender(STREAM)
        await sender.send_many(["x"] * 4)
        await brokers.servers[0].close()
        await sender.send(Message("x", message_annotations={"x-opt-partition": 3}))
        with pytest.raises(ferrymq.AmqpError):
            await sender.send(Message("x", message_annotations={"x-opt-partition": 0}))
        assert brokers.stream(1).range(3) == (0, 2)


async def test_the_virtual_host_stays_the_same() -> None:
    """Whether the option `hostname` names it, or the host of the URL does."""
    hosts = [{"name": "tenant", "hostnames": ["localhost"], "nodes": {"auto-create": False}}]
    async with SpreadBrokers(2, **{"virtual-host": hosts}) as brokers:
        placement = tuple(brokers.placement())
        for server in brokers.servers:
            space = server.broker.spaces["tenant"]
            space.create("theirs", StreamPolicy(partitions=4, partitions_on=placement))
        url = brokers.urls[0]
        for one in (f"{url}?hostname=vhost:tenant", url.replace("127.0.0.1", "localhost")):
            async with ferrymq.connect(one) as connection:
                await (await connection.sender("theirs::3")).send("x")
                sender = await connection.partitioned_sender("theirs")
                await sender.send(Message("x", message_annotations={"x-opt-partition": 2}))
        node = brokers.servers[1].broker.spaces["tenant"].nodes["theirs"]
        assert node.message_count() == 4


async def test_options_for_one_link_are_refused(brokers: SpreadBrokers) -> None:
    async with ferrymq.connect(brokers.urls[0]) as connection:
        with pytest.raises(ValueError, match="neither dynamic nor unsettled"):
            connection.partitioned_sender(STREAM, dynamic=True)
        with pytest.raises(ValueError, match="neither dynamic nor unsettled"):
            connection.partitioned_sender(STREAM, unsettled=[])


def test_the_blocking_client_has_it_too() -> None:
    async def serve() -> None:
        async with SpreadBrokers(2) as brokers:
            await asyncio.to_thread(use, brokers)
            assert brokers.counts() == [2] * 4

    def use(brokers: SpreadBrokers) -> None:
        with ferrymq.blocking.connect(brokers.urls[0]) as connection:
            with connection.partitioned_sender(STREAM) as sender:
                assert (sender.partitions, sender.address) == (4, STREAM)
                sender.send_many(["a", "b", "c"])
                sender.send("d")
                for number in range(4):
                    connection.sender(f"{STREAM}::{number}").send("e")
            assert sender.closed
            with connection.receiver(f"{STREAM}::3", start=0) as receiver:
                assert [receiver.receive(timeout=10).message.body for _ in range(2)] == ["d", "e"]

    asyncio.run(serve())
