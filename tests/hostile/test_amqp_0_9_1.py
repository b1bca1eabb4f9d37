"""Clients of AMQP 0-9-1 that break its rules, or use it as heavily as they can."""

from __future__ import annotations

import pytest

from ferrymq_codec_0_9_1.frames import PROTOCOL_HEADER
from ferrymq_types_0_9_1.basic import (
    BasicAck,
    BasicConsume,
    BasicGet,
    BasicNack,
    BasicPublish,
    BasicQos,
)
from ferrymq_types_0_9_1.channel import ChannelClose, ChannelCloseOk, ChannelOpen
from ferrymq_types_0_9_1.exchange import ExchangeDeclare
from ferrymq_types_0_9_1.queue import QueueBind, QueueDeclare, QueueDelete, QueuePurge
from ferrymq_types_0_9_1.tx import TxSelect
from tests.hostile.client_0_9_1 import Client091
from tests.hostile.site import Site
from tests.rabbitmq.engine_0_9_1.client import body, frame, header, pipelined, publication
from tests.raw.process import MIB

CONFIG = """
[personality]
name = "rabbitmq"

[limits]
transaction-bytes = "1MiB"
unfinished = "1MiB"

[[queue]]
name = "witness"

[[queue]]
name = "attacked"
"""

PUBLISH = frame(1, BasicPublish(routing_key="attacked"))


@pytest.mark.parametrize(
    "data",
    [
        b"\xff" * 100_000,
        PROTOCOL_HEADER + b"\x00" * 100_000,
        PROTOCOL_HEADER + b"\x01\x00\x00\xff\xff\xff\xff",
        PROTOCOL_HEADER[:7],
        pipelined()[:-3],
        pipelined() + publication(1, b"x", "attacked")[:-1] + b"\x00" * 50_000,
        pipelined() + b"\x01\x00\x01\x00\x00\x10\x00" + b"\x00\x3c\x00\x28" + b"\xff" * 4096,
    ],
)
def test_bytes_that_are_no_frames(site: Site, data: bytes) -> None:
    def attack() -> None:
        with Client091(site.port, opened=False) as client:
            client.send(data)
            client.finish()

    site.endures(attack)


def test_tables_in_tables(site: Site) -> None:
    nested = b""
    for _ in range(3000):
        nested = b"\x01aF" + len(nested).to_bytes(4, "big") + nested
    payload = b"\x00\x32\x00\x0a\x00\x00\x01q\x00" + len(nested).to_bytes(4, "big") + nested
    frames = b"\x01\x00\x01" + len(payload).to_bytes(4, "big") + payload + b"\xce"

    def attack() -> None:
        with Client091(site.port) as client:
            client.send(frames)
            assert client.code() in (501, 502)

    site.endures(attack)


def test_channels_opened_and_closed(site: Site) -> None:
    once = b"".join(frame(n, ChannelOpen()) for n in range(2, 500))
    once += b"".join(frame(n, ChannelClose()) for n in range(2, 500))

    def attack() -> None:
        with Client091(site.port) as client:
            for _ in range(5):
                client.send(once)
            for _ in range(5 * 498):
                client.until("channel.close-ok")

    site.endures(attack)


def test_a_body_that_never_ends(site: Site) -> None:
    """One byte in each frame, of a message of megabytes."""
    piece = body(1, b"x") * 20_000

    def attack() -> None:
        with Client091(site.port) as client:
            client.send(PUBLISH + header(1, 10 * MIB), piece)

    site.endures(attack)


def test_incomplete_messages_are_bounded(site: Site) -> None:
    def attack() -> None:
        with Client091(site.port) as client:
            client.send(PUBLISH + header(1, 10 * MIB), body(1, bytes(4 * MIB), 65536))
            assert client.code() in (0, 506)

    site.endures(attack)


def test_names_that_forge_the_log(site: Site) -> None:
    name = "q\nERROR forged \x1b[31m" + "\x7f" * 200

    def attack() -> None:
        with Client091(site.port) as client:
            client.send(QueueDeclare(queue=name, passive=True))
            assert client.code() == 404
        with Client091(site.port) as client:
            client.send(BasicPublish(exchange=name), header(1, 0))
            assert client.code() == 404

    site.endures(attack)
    assert "\nERROR forged" not in site.broker.log and "\x1b" not in site.broker.log


def test_publishing_to_what_does_not_exist(site: Site) -> None:
    """The channel is closed again and again, with messages under way."""
    lost = frame(1, BasicPublish(exchange="nope", routing_key="k")) + header(1, 1) + body(1, b"x")

    def attack() -> None:
        with Client091(site.port) as client:
            for _ in range(50):
                client.send(lost * 100)
                assert client.code() == 404
                client.send(ChannelCloseOk(), ChannelOpen())
                client.until("channel.open-ok")

    site.endures(attack)


def test_a_consumer_that_does_not_read(site: Site) -> None:
    big = publication(1, bytes(60_000), "attacked")

    def attack() -> None:
        with Client091(site.port) as client:
            client.send(BasicConsume(queue="attacked", no_ack=True, consumer_tag="deaf"))
            client.until("basic.consume-ok")
            with Client091(site.port) as other:
                for _ in range(200):
                    other.send(big)
                other.send(QueuePurge(queue="attacked"))
                other.until("queue.purge-ok")

    site.endures(attack, bound=24 * MIB)


def test_deliveries_that_are_returned_and_taken_again(site: Site) -> None:
    def attack() -> None:
        with Client091(site.port) as client:
            client.send(
                QueueDeclare(queue="ring", auto_delete=True),
                publication(1, b"x", "ring") * 100,
                BasicQos(prefetch_count=100),
                BasicConsume(queue="ring", consumer_tag="c"),
            )
            for _ in range(50):
                for _ in range(100):
                    last = client.until("basic.deliver").delivery_tag
                client.send(BasicNack(delivery_tag=last, multiple=True, requeue=True))
            client.send(QueueDelete(queue="ring"))
            client.until("queue.delete-ok")

    site.endures(attack)


def test_many_deliveries_return_when_their_connection_is_lost(site: Site) -> None:
    """Tens of thousands of messages, held by one client that disappears."""
    count = 15_000

    def attack() -> None:
        with Client091(site.port) as client:
            client.send(QueueDeclare(queue="held"), publication(1, b"x", "held") * count)
            client.send(BasicConsume(queue="held", consumer_tag="c"))
            for _ in range(count):
                client.until("basic.deliver")
        with Client091(site.port) as client:
            client.send(QueueDelete(queue="held"))
            assert client.until("queue.delete-ok").message_count <= count

    site.endures(attack, bound=24 * MIB)


def test_a_transaction_that_is_too_large(site: Site) -> None:
    def attack() -> None:
        with Client091(site.port) as client:
            client.send(TxSelect())
            client.until("tx.select-ok")
            client.send(publication(1, bytes(60_000), "attacked") * 20)
            assert client.code() == 406

    site.endures(attack)


@pytest.mark.parametrize("tag", [0, 1, 2**63, 2**64 - 1])
def test_outcomes_of_deliveries_that_never_were(site: Site, tag: int) -> None:
    def attack() -> None:
        with Client091(site.port) as client:
            client.send(BasicAck(delivery_tag=tag))
            assert client.code() == 406

    site.endures(attack)


def test_a_message_of_a_queue_that_is_gone(site: Site) -> None:
    """It may still be acknowledged, without effect."""

    def attack() -> None:
        with Client091(site.port) as client:
            client.send(
                QueueDeclare(queue="gone"),
                publication(1, b"1", "gone") * 3,
                BasicGet(queue="gone"),
                BasicConsume(queue="gone", consumer_tag="c"),
            )
            client.until("basic.deliver")
            client.send(QueueDelete(queue="gone"))
            client.until("queue.delete-ok")
            client.send(BasicAck(delivery_tag=1), BasicAck(delivery_tag=0, multiple=True))
            client.send(BasicQos())
            client.until("basic.qos-ok")

    site.endures(attack)


def test_consumers_and_queues_and_bindings_without_number(site: Site) -> None:
    declared = b"".join(
        frame(1, QueueDeclare(queue=f"n{number}", exclusive=True, no_wait=True))
        + frame(1, QueueBind(queue=f"n{number}", exchange="many", routing_key="k", no_wait=True))
        + frame(1, BasicConsume(queue=f"n{number}", no_wait=True, consumer_tag=f"c{number}"))
        for number in range(500)
    )

    def attack() -> None:
        with Client091(site.port) as client:
            client.send(ExchangeDeclare(exchange="many", exchange_type="direct", auto_delete=True))
            client.send(declared, frame(1, BasicPublish(exchange="many", routing_key="k")))
            client.send(header(1, 0))
            for _ in range(500):
                client.until("basic.deliver")

    site.endures(attack)
