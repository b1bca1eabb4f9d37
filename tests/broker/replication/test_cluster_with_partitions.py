"""A cluster as one of the brokers that have the partitions of a stream."""

from __future__ import annotations

import asyncio
from pathlib import Path

import ferrymq
from ferrymq import Message
from ferrymq_broker.config import Config
from ferrymq_broker.server import BrokerServer
from tests.broker.replication.member_cluster import member_cluster
from tests.client.keeper import POLICY
from tests.interop.brokers.process import free_ports


async def test_the_partition_of_a_cluster_is_where_its_leader_is(tmp_path: Path) -> None:
    single, one, two = (f"amqp://127.0.0.1:{port}" for port in free_ports(3))
    stream = [{"name": "orders", "partitions-on": [f"0 {single}", f"1 {one},{two}"]}]

    def of(url: str) -> dict[str, object]:
        return {"advertise": url, "listener": [{"url": url}], "stream": stream}

    there = Message("x", message_annotations={"x-opt-partition": 1})
    async with (
        BrokerServer(Config.model_validate(of(single))),
        member_cluster(tmp_path) as cluster,
        ferrymq.connect(single, reconnect=POLICY) as connection,
    ):
        await cluster.start("one", **of(one))
        await cluster.leads("one")
        await cluster.start("two", **of(two))
        sender = await connection.partitioned_sender("orders")
        await sender.send(there)
        await cluster.stop("one")
        await cluster.leads("two")
        await asyncio.wait_for(sender.send(there), 20)
        # A client that comes now is sent on by the URL that nobody answers at, or by a standby.
        await cluster.start("one", **of(one))
        async with (
            ferrymq.connect(single) as late,
            late.receiver("orders::1", start=0) as receiver,
        ):
            for offset in range(2):
                delivery = await receiver.receive(timeout=20)
                assert delivery.message.message_annotations["x-opt-offset"] == offset
            assert receiver.session.connection.url.port == int(two.rsplit(":", 1)[1])
