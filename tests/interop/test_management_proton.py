"""Proton: management over a dynamic queue for replies, and over links to the node itself."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from proton import Message, int32, symbol, ulong
from proton.reactor import LinkOption
from proton.utils import BlockingConnection, SyncRequestResponse

from tests.interop.broker_process import BrokerProcess
from tests.interop.proton_client import TIMEOUT, connect

pytestmark = pytest.mark.interop


def request(operation: str, type: str, name: str | None = None, body: Any = None) -> Message:
    properties = {"operation": operation, "type": type}
    if name is not None:
        properties["name"] = name
    return Message(properties=properties, body={} if body is None else body)


def status(answer: Message) -> int:
    code = answer.properties["statusCode"]
    assert type(code) is int32
    return int(code)


def test_a_queue_is_made_and_deleted_over_a_dynamic_reply_queue(
    connection: BlockingConnection, address: str
) -> None:
    asker = SyncRequestResponse(connection, "$management")
    made = asker.call(request("CREATE", "queue", address, {"max-length": 5}))
    assert (status(made), made.properties["statusDescription"]) == (201, "created")
    assert made.body["max-length"] == 5
    sender = connection.create_sender(address)
    for body in ("one", "two"):
        sender.send(Message(body=body))
    sender.close()
    read = asker.call(request("READ", "org.ferrymq.queue", address))
    assert (status(read), read.body["available"]) == (200, 2)
    table = asker.call(
        request(
            "QUERY",
            "org.amqp.management",
            "self",
            {"entityType": "queue", "attributeNames": ["name", "messages"]},
        )
    )
    assert [address, 2] in table.body["results"]
    assert table.properties["count"] == len(table.body["results"])
    first, _ = asker.call(request("PEEK", "queue", address)).body["messages"]
    peeked = Message()
    peeked.decode(bytes(first["message"]))
    assert peeked.body == "one"
    assert asker.call(request("PURGE", "queue", address)).body == {"count": 2}
    assert status(asker.call(request("DELETE", "queue", address))) == 204
    gone = asker.call(request("READ", "queue", address))
    assert status(gone) == 404
    assert address in gone.properties["statusDescription"]


def test_messages_are_leased_and_settled(connection: BlockingConnection, address: str) -> None:
    asker = SyncRequestResponse(connection, "$management")
    assert status(asker.call(request("CREATE", "queue", address))) == 201
    sender = connection.create_sender(address)
    for body in ("one", "two", "three"):
        sender.send(Message(body=body))
    sender.close()

    def ask(operation: str, **arguments: Any) -> Any:
        answer = asker.call(request(operation, "queue", address, {"holder": "h", **arguments}))
        assert status(answer) == 200
        return answer.body

    assert ask("LEASE", number=1, messages=2)["messages"] == 2
    properties = {symbol("ferrymq:lease"): {"holder": "h", "number": 1}}
    for _ in range(2):
        reader = connection.create_receiver(
            address, credit=5, name=f"reader-{uuid.uuid4()}", options=LeaseOf(properties)
        )
        assert [reader.receive(timeout=TIMEOUT).body for _ in range(2)] == ["one", "two"]
        reader.close()
    rest = connection.create_receiver(address, credit=5)
    assert rest.receive(timeout=TIMEOUT).body == "three"
    rest.reject()
    rest.close()
    assert list(ask("SETTLE-LEASES", until=1)["numbers"]) == [1]
    assert asker.call(request("READ", "queue", address)).body["messages"] == 0


class LeaseOf(LinkOption):  # type: ignore[misc]
    """The properties of a link that reads a lease."""

    def __init__(self, properties: dict[Any, Any]) -> None:
        self.properties = properties

    def apply(self, link: Any) -> None:
        link.properties = self.properties


def test_an_error_is_an_answer(connection: BlockingConnection, address: str) -> None:
    asker = SyncRequestResponse(connection, "$management")
    wrong = asker.call(request("CREATE", "queue", address, {"max-length": -1}))
    assert status(wrong) == 400
    assert "max-length" in wrong.properties["statusDescription"]
    assert status(asker.call(request("REGISTER", "org.amqp.management", "self"))) == 501


@pytest.mark.parametrize("id", ["text", uuid.uuid4(), ulong(7), b"bytes"])
@pytest.mark.parametrize("named", [True, False])
def test_responses_over_a_receiver_on_the_node(
    connection: BlockingConnection, id: Any, named: bool
) -> None:
    receiver = connection.create_receiver("$management", credit=1, name="my-responses")
    sender = connection.create_sender("$management", name="my-requests")
    message = request("READ", "broker", "broker")
    message.id = id
    if named:
        message.reply_to = "my-responses"
    sender.send(message)
    answer = receiver.receive(timeout=TIMEOUT)
    receiver.accept()
    assert status(answer) == 200
    assert answer.correlation_id == id
    assert answer.body["product"] == "ferrymq"
    receiver.close()
    sender.close()


def test_proton_sees_its_own_connection_and_closes_another(
    connection: BlockingConnection, broker: BrokerProcess
) -> None:
    asker = SyncRequestResponse(connection, "$management")
    with connect(broker.url) as other:
        container = other.conn.container
        rows = asker.call(
            request(
                "QUERY",
                "org.amqp.management",
                "self",
                {"entityType": "connection", "attributeNames": ["identity", "container-id"]},
            )
        ).body["results"]
        (number,) = (number for number, name in rows if name == container)
        assert status(asker.call(request("DELETE", "connection", number))) == 204
        with pytest.raises(Exception, match="amqp:connection:forced"):
            other.create_sender("anything")
