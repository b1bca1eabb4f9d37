"""From every client to every other: what one wrote the others read, type by type."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from typing import TypeAlias

import proton
import pytest

import ferrymq
from ferrymq import Message
from tests.interop import ferrymq_values, proton_client, proton_values, rhea_client
from tests.interop.broker_process import BrokerProcess
from tests.interop.values import (
    APPLICATION_PROPERTIES,
    COMPOUNDS,
    DATA,
    PRIMITIVES,
    SEQUENCE,
    VALUE,
    Section,
    application_properties,
    binary,
    canonical,
    integer,
    string,
)

pytestmark = pytest.mark.interop

Messages: TypeAlias = list[list[Section]]
Send: TypeAlias = Callable[[BrokerProcess, str, Messages], None]
Receive: TypeAlias = Callable[[BrokerProcess, str, int], Messages]

CORPUS: Messages = [
    *([(VALUE, value)] for values in PRIMITIVES.values() for value in values),
    *([(VALUE, value)] for value in COMPOUNDS),
    [(APPLICATION_PROPERTIES, application_properties()), (VALUE, ["null"])],
    [(DATA, binary(b""))],
    [(DATA, binary(b"data")), (DATA, binary(b"and more"))],
    [(DATA, binary(os.urandom(300_000)))],
    [(SEQUENCE, ["list", [string("a"), integer("ubyte", 1)]])],
    [(SEQUENCE, ["list", [integer("int", 1)]]), (SEQUENCE, ["list", [integer("int", 2)]])],
]


# -- each client, sending and receiving ------------------------------------------------------


def proton_send(broker: BrokerProcess, address: str, messages: Messages) -> None:
    with proton_client.connect(broker.url) as connection:
        encoded = [proton_values.encode_sections(message) for message in messages]
        proton_client.send_encoded(connection, address, *encoded)


def proton_receive(broker: BrokerProcess, address: str, count: int) -> Messages:
    with proton_client.connect(broker.url) as connection:
        received = proton_client.receive_encoded(connection, address, count)
    return [proton_values.decode_sections(data) for data in received]


def rhea_send(broker: BrokerProcess, address: str, messages: Messages) -> None:
    outcomes = rhea_client.run(broker, "send_sections", address=address, messages=messages)
    assert outcomes == ["accepted"] * len(messages)


def rhea_receive(broker: BrokerProcess, address: str, count: int) -> Messages:
    received: Messages = rhea_client.run(broker, "receive_sections", address=address, count=count)
    return received


def ferrymq_send(broker: BrokerProcess, address: str, messages: Messages) -> None:
    async def send() -> None:
        async with ferrymq.connect(broker.url) as connection:
            sender = await connection.sender(address)
            for message in messages:
                await sender.send(ferrymq_values.to_message(message))

    asyncio.run(send())


def ferrymq_receive(broker: BrokerProcess, address: str, count: int) -> Messages:
    async def receive() -> Messages:
        async with ferrymq.connect(broker.url) as connection:
            receiver = await connection.receiver(address)
            messages = []
            for _ in range(count):
                delivery = await receiver.receive(timeout=20)
                messages.append(ferrymq_values.from_message(delivery.message))
                await delivery.accept()
            return messages

    return asyncio.run(receive())


def blocking_send(broker: BrokerProcess, address: str, messages: Messages) -> None:
    with ferrymq.blocking.connect(broker.url) as connection:
        sender = connection.sender(address)
        for message in messages:
            sender.send(ferrymq_values.to_message(message))


def blocking_receive(broker: BrokerProcess, address: str, count: int) -> Messages:
    messages = []
    with ferrymq.blocking.connect(broker.url) as connection:
        receiver = connection.receiver(address)
        for _ in range(count):
            delivery = receiver.receive(timeout=20)
            messages.append(ferrymq_values.from_message(delivery.message))
            delivery.accept()
    return messages


CLIENTS: dict[str, tuple[Send, Receive]] = {
    "proton": (proton_send, proton_receive),
    "rhea": (rhea_send, rhea_receive),
    "ferrymq": (ferrymq_send, ferrymq_receive),
    "ferrymq.blocking": (blocking_send, blocking_receive),
}
PAIRS = [
    pytest.param(one, other, marks=[rhea_client.needs_rhea] if "rhea" in (one, other) else [])
    for one in CLIENTS
    for other in CLIENTS
    if one != other
]


def same(messages: Messages) -> Messages:
    """The messages in a form in which equal ones are equal; headers of defaults say nothing."""
    return [
        [
            (code, canonical(value))
            for code, value in message
            if (code, value) not in ((0x70, ["list", []]), (0x73, ["list", []]))
        ]
        for message in messages
    ]


@pytest.mark.parametrize(("sender", "receiver"), PAIRS)
def test_what_one_writes_the_other_reads(
    broker: BrokerProcess, address: str, sender: str, receiver: str
) -> None:
    send, receive = CLIENTS[sender][0], CLIENTS[receiver][1]
    send(broker, address, CORPUS)
    received = same(receive(broker, address, len(CORPUS)))
    for got, sent in zip(received, same(CORPUS), strict=True):
        assert got == sent


# -- Proton's and ferrymq's own message objects ---------------------------------------------


def test_message_object_of_proton_read_by_ferrymq(broker: BrokerProcess, address: str) -> None:
    with proton_client.connect(broker.url) as connection:
        connection.create_sender(address).send(
            proton.Message(
                body={"a": [1, proton.uint(2)]},
                id=proton.ulong(7),
                subject="subject",
                reply_to="reply",
                correlation_id="correlation",
                content_type=proton.symbol("text/plain"),
                creation_time=1.5,
                user_id=b"user",
                durable=True,
                priority=8,
                ttl=60.0,
                annotations={proton.symbol("x-opt-a"): "b"},
                properties={"key": proton.timestamp(5)},
            )
        )
    with ferrymq.blocking.connect(broker.url) as connection:
        delivery = connection.receiver(address).receive(timeout=20)
        message = delivery.message
        delivery.accept()
    assert message.body == {"a": [1, 2]}
    assert (message.message_id, message.correlation_id) == (7, "correlation")
    assert (message.subject, message.reply_to, message.user_id) == ("subject", "reply", b"user")
    assert (message.content_type, message.creation_time) == ("text/plain", 1500)
    assert (message.durable, message.priority, message.delivery_count) == (True, 8, 0)
    assert message.ttl is not None and 0 < message.ttl <= 60
    assert message.message_annotations == {"x-opt-a": "b"}
    assert message.application_properties == {"key": 5}


def test_message_object_of_ferrymq_read_by_proton(broker: BrokerProcess, address: str) -> None:
    with ferrymq.blocking.connect(broker.url) as connection:
        connection.sender(address).send(
            Message(
                b"bytes",
                message_id=7,
                subject="subject",
                to="to",
                content_type="text/plain",
                creation_time=1500,
                durable=True,
                priority=8,
                message_annotations={"x-opt-a": "b", 9: "nine"},
                application_properties={"key": 2**40},
            )
        )
    with proton_client.connect(broker.url) as connection:
        receiver = connection.create_receiver(address)
        message = receiver.receive()
        receiver.accept()
    assert (bytes(message.body), message.inferred) == (b"bytes", True)
    assert (message.id, message.subject, message.address) == (7, "subject", "to")
    assert (message.content_type, message.creation_time) == ("text/plain", 1.5)
    assert (message.durable, message.priority) == (True, 8)
    assert message.annotations == {proton.symbol("x-opt-a"): "b", proton.ulong(9): "nine"}
    assert message.properties == {"key": 2**40}


def test_ten_megabytes_from_ferrymq_to_proton_and_back(broker: BrokerProcess, address: str) -> None:
    body = os.urandom(10_000_000)
    with ferrymq.blocking.connect(broker.url) as mine:
        mine.sender(address).send(Message(body))
        with proton_client.connect(broker.url) as theirs:
            receiver = theirs.create_receiver(address)
            message = receiver.receive()
            receiver.accept()
            theirs.create_sender(f"{address}-back").send(message)
        delivery = mine.receiver(f"{address}-back").receive(timeout=20)
        assert delivery.message.body == body
        delivery.accept()


# -- working together ------------------------------------------------------------------------


def test_ferrymq_answers_proton(broker: BrokerProcess, address: str) -> None:
    """Proton's request-response client, a server on ferrymq's asyncio client."""

    ready = threading.Event()

    async def serve() -> None:
        async with ferrymq.connect(broker.url) as connection:
            requests = await connection.receiver(address)
            answers = await connection.sender(None)
            ready.set()
            for _ in range(3):
                delivery = await requests.receive(timeout=20)
                request = delivery.message
                await answers.send(
                    Message(
                        request.body.upper(),
                        to=request.reply_to,
                        correlation_id=request.correlation_id,
                    )
                )
                await delivery.accept()

    server = threading.Thread(target=asyncio.run, args=(serve(),))
    server.start()
    try:
        assert ready.wait(20)
        with proton_client.connect(broker.url) as connection:
            client = proton.utils.SyncRequestResponse(connection, address)
            answers = [client.call(proton.Message(body=word)).body for word in ("a", "b", "c")]
    finally:
        server.join(30)
    assert answers == ["A", "B", "C"]


def test_outcomes_between_clients(broker: BrokerProcess, address: str) -> None:
    """What ferrymq modifies, Proton sees as failed; what Proton releases, ferrymq gets again."""
    with ferrymq.blocking.connect(broker.url) as mine, proton_client.connect(broker.url) as theirs:
        mine.sender(address).send(Message("x"))
        receiver = mine.receiver(address)
        delivery = receiver.receive(timeout=20)
        delivery.modify(delivery_failed=True, message_annotations={"x-opt-why": "busy"})
        receiver.close()
        proton_receiver = theirs.create_receiver(address)
        message = proton_receiver.receive()
        assert (message.body, message.delivery_count) == ("x", 1)
        assert message.annotations == {proton.symbol("x-opt-why"): "busy"}
        proton_receiver.release(delivered=False)
        proton_receiver.close()
        again = mine.receiver(address).receive(timeout=20)
        assert (again.message.body, again.message.delivery_count) == ("x", 1)
        again.accept()
