"""RabbitMQ's AMQP 1.0 client for Python, unmodified, on a broker with the personality."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ferrymq_broker.config import Config
from ferrymq_broker.server import BrokerServer
from tests.support.reader import blocks

rabbit = pytest.importorskip("rabbitmq_amqp_python_client")

pytestmark = pytest.mark.interop

CONFIG = {"listener": [{"url": "amqp://127.0.0.1:0"}], "personality": {"name": "rabbitmq"}}

PAGE = Path(__file__).parents[2] / "docs" / "broker" / "rabbitmq.md"
ACCEPTED = 36
ADDRESS = rabbit.AddressHelper


class _Enough(BaseException):
    """Raised in a handler to end `Consumer.run`."""


class Bed:
    """Connections of the client to one broker."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._open: list[Any] = []
        self.connection = self.connect()
        self.management = self.connection.management()

    def connect(self) -> Any:
        environment = rabbit.Environment(uri=f"amqp://guest:guest@127.0.0.1:{self.port}/")
        self._open.append(environment)
        connection = environment.connection()
        connection.dial()
        return connection

    def close(self) -> None:
        for environment in reversed(self._open):
            environment.close()

    def send(self, address: str, *bodies: bytes, **fields: object) -> list[int]:
        publisher = self.connection.publisher(address)
        try:
            return [
                publisher.publish(rabbit.Message(body=body, **fields)).remote_state
                for body in bodies
            ]
        finally:
            publisher.close()

    def take(
        self,
        address: str,
        count: int,
        settle: Callable[[Any, Any], None] = lambda context, event: context.accept(event),
        options: object = None,
    ) -> list[Any]:
        """Receive over a connection of its own, and settle each message."""
        got: list[Any] = []

        class Handler(rabbit.AMQPMessagingHandler):  # type: ignore[misc]
            def on_amqp_message(self, event: Any) -> None:
                got.append(event.message)
                settle(self.delivery_context, event)
                if len(got) == count:
                    raise _Enough

        connection = self.connect()
        consumer = connection.consumer(address, message_handler=Handler(), consumer_options=options)
        with pytest.raises(_Enough):
            consumer.run()
        consumer.close()
        return got


@contextmanager
def _refused(text: str) -> Iterator[None]:
    # The client's exceptions are no subclasses of Exception.
    with pytest.raises(BaseException, match=text):
        yield


def run(use: Callable[[Bed], None]) -> None:
    async def serve() -> None:
        async with BrokerServer(Config.model_validate(CONFIG)) as server:
            await asyncio.to_thread(_work, server.port)

    def _work(port: int) -> None:
        bed = Bed(port)
        try:
            use(bed)
        finally:
            bed.close()

    asyncio.run(serve())


def bodies(messages: list[Any]) -> list[bytes]:
    return [bytes(message.body) for message in messages]


def test_the_example_of_the_page() -> None:
    (code,) = [code for language, code in blocks(PAGE.read_text("utf-8")) if language == "python"]

    def use(bed: Bed) -> None:
        script = code.replace("localhost:5672", f"127.0.0.1:{bed.port}")
        exec(compile(script, str(PAGE), "exec"), {})
        assert bed.management.queue_info("sales").message_count == 1

    run(use)


def test_an_exchange_and_a_queue_of_the_same_name() -> None:
    def use(bed: Bed) -> None:
        management = bed.management
        exchange = rabbit.ExchangeSpecification(
            name="sales", exchange_type=rabbit.ExchangeType.topic
        )
        management.declare_exchange(exchange)
        management.declare_exchange(exchange)
        management.declare_queue(rabbit.QuorumQueueSpecification(name="sales"))
        binding = management.bind(
            rabbit.ExchangeToQueueBindingSpecification("sales", "sales", "eu.#")
        )
        assert bed.send(ADDRESS.exchange_address("sales", "eu.fr"), b"1", b"2") == [ACCEPTED] * 2
        with _refused("RELEASED|38"):
            bed.send(ADDRESS.exchange_address("sales", "us.ny"), b"3")
        bed.connection.publisher().publish(
            ADDRESS.message_to_address_helper(
                rabbit.Message(body=b"4"), ADDRESS.queue_address("sales")
            )
        )
        info = management.queue_info("sales")
        assert (info.queue_type.value, info.message_count, info.is_durable) == ("quorum", 3, True)
        first, second, third = bed.take(ADDRESS.queue_address("sales"), 3)
        assert bodies([first, second, third]) == [b"1", b"2", b"4"]
        assert first.annotations == {"x-exchange": "sales", "x-routing-key": "eu.fr"}
        assert third.annotations == {"x-exchange": "", "x-routing-key": "sales"}
        with _refused("ErrPreconditionFailed"):
            management.declare_queue(rabbit.ClassicQueueSpecification(name="sales"))
        management.unbind(binding)
        with _refused("RELEASED|38"):
            bed.send(ADDRESS.exchange_address("sales", "eu.fr"), b"5")
        bed.send(ADDRESS.queue_address("sales"), b"6")
        assert management.purge_queue("sales") == 1
        management.delete_queue("sales")
        management.delete_exchange("sales")
        with _refused("404"):
            management.queue_info("sales")

    run(use)


def test_outcomes_of_a_consumer() -> None:
    def use(bed: Bed) -> None:
        management = bed.management
        management.declare_exchange(rabbit.ExchangeSpecification(name="dlx"))
        management.declare_queue(rabbit.QuorumQueueSpecification(name="dead"))
        management.bind(rabbit.ExchangeToQueueBindingSpecification("dlx", "dead", "q"))
        management.declare_queue(
            rabbit.QuorumQueueSpecification(name="q", dead_letter_exchange="dlx")
        )
        queue = ADDRESS.queue_address("q")
        bed.send(queue, b"requeue", b"annotate", b"discard", b"tell")

        def settle(context: Any, event: Any) -> None:
            body = bytes(event.message.body)
            if event.message.delivery_count or event.message.annotations.get("x-opt-why"):
                context.accept(event)
            elif body == b"requeue":
                requeued.append(body)
                (context.requeue if len(requeued) == 1 else context.accept)(event)
            elif body == b"annotate":
                context.requeue_with_annotations(event, {"x-opt-why": "later"})
            elif body == b"discard":
                context.discard(event)
            else:
                context.discard_with_annotations(event, {"x-opt-why": "broken"})

        requeued: list[bytes] = []
        got = bed.take(queue, 6, settle)
        assert sorted(bodies(got)) == [
            b"annotate",
            b"annotate",
            b"discard",
            b"requeue",
            b"requeue",
            b"tell",
        ]
        assert [one.annotations.get("x-opt-why") for one in got if bytes(one.body) == b"annotate"][
            -1
        ] == "later"
        # Without a key of its own, a dead letter keeps its routing key.
        dead = bed.take(ADDRESS.queue_address("dead"), 2)
        assert {bytes(one.body): one.annotations.get("x-opt-why") for one in dead} == {
            b"discard": None,
            b"tell": "broken",
        }
        assert dead[0].annotations["x-routing-key"] == "q"

    run(use)


def test_a_stream() -> None:
    def use(bed: Bed) -> None:
        bed.management.declare_queue(rabbit.StreamSpecification(name="s"))
        stream = ADDRESS.queue_address("s")
        for number in range(8):
            value = {"x-stream-filter-value": "odd" if number % 2 else "even"}
            bed.send(
                stream,
                b"%d" % number,
                annotations=value if number < 6 else None,
                application_properties={"n": number},
                subject=f"s{number}",
            )
        first = rabbit.OffsetSpecification.first
        options = rabbit.StreamConsumerOptions
        filters = rabbit.StreamFilterOptions
        for asked, expected in (
            (options(first), b"01234567"),
            (options(5), b"567"),
            (options(first, filters(values=["odd"])), b"135"),
            (options(first, filters(values=["odd"], match_unfiltered=True)), b"13567"),
            (options(first, filters(sql="n > 5")), b"67"),
            (
                options(first, filters(message_properties=rabbit.MessageProperties(subject="s4"))),
                b"4",
            ),
        ):
            assert b"".join(bodies(bed.take(stream, len(expected), options=asked))) == expected
        (last,) = bed.take(stream, 1, options=options(7))
        assert last.annotations["x-stream-offset"] == 7
        assert last.annotations["x-routing-key"] == "s"
        assert bed.management.queue_info("s").queue_type.value == "stream"

    run(use)


def test_direct_reply_to() -> None:
    def use(bed: Bed) -> None:
        got: list[Any] = []

        class Handler(rabbit.AMQPMessagingHandler):  # type: ignore[misc]
            def on_amqp_message(self, event: Any) -> None:
                got.append(event.message)
                raise _Enough

        reply = rabbit.ConsumerOptions(settle_strategy=rabbit.ConsumerSettleStrategy.DirectReplyTo)
        consumer = bed.connect().consumer(message_handler=Handler(), consumer_options=reply)
        address = consumer.address
        assert address.startswith("/queues/")
        responder = bed.connection.publisher()
        message = ADDRESS.message_to_address_helper(
            rabbit.Message(body=b"answer", correlation_id="1"), address
        )
        assert responder.publish(message).remote_state == ACCEPTED
        with pytest.raises(_Enough):
            consumer.run()
        assert (bytes(got[0].body), got[0].correlation_id) == (b"answer", "1")

    run(use)


def test_queues_that_end() -> None:
    def use(bed: Bed) -> None:
        management = bed.management
        classic = rabbit.ClassicQueueSpecification
        management.declare_queue(classic(name="mine", is_exclusive=True))
        other = bed.connect()
        with _refused("resource-locked"):
            other.consumer(ADDRESS.queue_address("mine"))
        with _refused("ErrPreconditionFailed"):
            other.management().delete_queue("mine")
        owner = bed.connect()
        owner.management().declare_queue(classic(name="theirs", is_exclusive=True))
        assert management.queue_info("theirs").is_exclusive
        owner.close()
        _gone(management, "theirs")
        # It goes with its last consumer, whatever is in it.
        management.declare_queue(classic(name="auto", is_auto_delete=True))
        bed.send(ADDRESS.queue_address("auto"), b"1", b"2")
        assert management.queue_info("auto").message_count == 2
        bed.take(ADDRESS.queue_address("auto"), 1)
        _gone(management, "auto")

    run(use)


def _gone(management: Any, name: str) -> None:
    """Wait until the broker knows of the end of a connection."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            management.queue_info(name)
        except BaseException as error:
            assert "404" in str(error)
            return
    pytest.fail(f"{name} is still there")


def test_a_full_queue() -> None:
    def use(bed: Bed) -> None:
        bed.management.declare_queue(
            rabbit.ClassicQueueSpecification(
                name="q", max_len=1, overflow_behaviour="reject-publish"
            )
        )
        queue = ADDRESS.queue_address("q")
        assert bed.send(queue, b"1") == [ACCEPTED]
        with _refused("has no room: its limit is max-length of 1"):
            bed.send(queue, b"2")
        settled = rabbit.ConsumerOptions(settle_strategy=rabbit.ConsumerSettleStrategy.PreSettled)
        assert bodies(bed.take(queue, 1, lambda context, event: None, settled)) == [b"1"]

    run(use)
