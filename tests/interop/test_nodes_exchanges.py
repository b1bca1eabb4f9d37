"""Proton: exchanges of every kind, alternates, what went nowhere."""

from __future__ import annotations

from typing import Any

import pytest
from proton import Delivery, Message, symbol
from proton.utils import BlockingConnection, LinkDetached, SyncRequestResponse

from tests.interop.proton_nodes import Asking, Inbox, left, send

pytestmark = pytest.mark.interop

ACCEPTED, RELEASED, REJECTED = Delivery.ACCEPTED, Delivery.RELEASED, Delivery.REJECTED

CONFIG = """
[[queue]]
pattern = "q-*"

[[queue]]
name = "one"

[[queue]]
name = "two"

[[queue]]
name = "odd"

[[queue]]
name = "narrow"
max-length = 1

[[stream]]
name = "log"

[[exchange]]
name = "direct"
[[exchange.binding]]
key = "1"
to = "one"
[[exchange.binding]]
key = "2"
to = "two"
[[exchange.binding]]
key = "both"
to = "one"
[[exchange.binding]]
key = "both"
to = "two"

[[exchange]]
name = "words"
routing = "topic"
[[exchange.binding]]
key = "eu.*.new"
to = "one"
[[exchange.binding]]
key = "#.new"
to = "two"

[[exchange]]
name = "fanout"
routing = "fanout"
[[exchange.binding]]
to = "one"
[[exchange.binding]]
to = "two"
[[exchange.binding]]
to = "log"

[[exchange]]
name = "headers"
routing = "headers"
[[exchange.binding]]
to = "one"
arguments = { colour = "red", size = 3 }
[[exchange.binding]]
to = "two"
arguments = { x-match = "any", colour = "blue", size = 3 }

[[exchange]]
name = "alternating"
alternate = "second-choice"
[[exchange.binding]]
key = "1"
to = "one"

[[exchange]]
name = "second-choice"
alternate = "odd"
[[exchange.binding]]
key = "2"
to = "two"

[[exchange]]
name = "tight"
routing = "fanout"
[[exchange.binding]]
to = "one"
[[exchange.binding]]
to = "narrow"
"""


def keyed(key: str | None, body: Any = None) -> Message:
    return Message(body=key if body is None else body, subject=key)


def test_direct(connection: BlockingConnection) -> None:
    outcomes = send(connection, "direct", *map(keyed, ("1", "2", "both", "1.2")))
    assert outcomes == [ACCEPTED] * 3 + [RELEASED]
    assert left(connection, "one") == ["1", "both"]
    assert left(connection, "two") == ["2", "both"]


def test_where_the_routing_key_is_found(connection: BlockingConnection) -> None:
    annotated = {symbol("x-opt-routing-key"): "2"}
    send(connection, "direct::1", Message(body="address", subject="2"))
    send(connection, "direct", Message(body="subject", subject="1", annotations=annotated))
    send(connection, "direct", Message(body="annotation", annotations=annotated))
    send(connection, None, Message(body="to", address="direct::2", subject="1"))
    assert left(connection, "one") == ["address", "subject"]
    assert left(connection, "two") == ["annotation", "to"]


def test_patterns_of_words(connection: BlockingConnection) -> None:
    keys = ("eu.fr.new", "eu.new", "new", "eu.fr.de.new", "eu.fr.old")
    assert send(connection, "words", *map(keyed, keys)) == [ACCEPTED] * 4 + [RELEASED]
    assert left(connection, "one") == ["eu.fr.new"]
    assert left(connection, "two") == list(keys[:4])


def test_fanout(connection: BlockingConnection) -> None:
    assert send(connection, "fanout", keyed("anything")) == [ACCEPTED]
    assert left(connection, "one") == left(connection, "two") == ["anything"]
    first = Asking(filters={"ferrymq:position": "first"})
    assert Inbox(connection, "log", options=first).next().body == "anything"


def test_headers(connection: BlockingConnection) -> None:
    messages = [
        Message(body=1, properties={"colour": "red", "size": 3, "more": True}),
        Message(body=2, properties={"colour": "blue"}),
        Message(body=3, properties={"colour": "green", "size": 3.5}),
    ]
    assert send(connection, "headers", *messages) == [ACCEPTED, ACCEPTED, RELEASED]
    assert left(connection, "one") == [1]
    assert left(connection, "two") == [1, 2]


def test_alternates_of_alternates(connection: BlockingConnection) -> None:
    assert send(connection, "alternating", *map(keyed, ("1", "2", "3"))) == [ACCEPTED] * 3
    assert [left(connection, q) for q in ("one", "two", "odd")] == [["1"], ["2"], ["3"]]


def test_one_of_the_queues_is_full(connection: BlockingConnection) -> None:
    assert send(connection, "tight", "a") == [ACCEPTED]
    sender = connection.create_sender("tight")
    delivery = sender.link.send(Message(body="b"))
    connection.wait(lambda: delivery.settled)
    assert delivery.remote_state == REJECTED
    assert delivery.remote.condition.name == "amqp:resource-limit-exceeded"
    assert delivery.remote.condition.info["queue"] == "narrow"
    delivery.settle()
    assert left(connection, "one") == ["a", "b"]
    assert left(connection, "narrow") == ["a"]


def test_what_went_nowhere_comes_back_over_the_anonymous_terminus(
    connection: BlockingConnection,
) -> None:
    outcomes = send(connection, None, *[Message(address=f"direct::{key}") for key in ("9", "1")])
    assert outcomes == [RELEASED, ACCEPTED]
    assert left(connection, "one") == [None]


def test_nobody_receives_from_an_exchange(connection: BlockingConnection) -> None:
    with pytest.raises(LinkDetached, match="not-allowed"):
        connection.create_receiver("direct")


def test_bindings_made_and_deleted_by_management(
    connection: BlockingConnection, address: str
) -> None:
    asker = SyncRequestResponse(connection, "$management")

    def ask(operation: str, type: str, name: str | None, body: dict[str, Any]) -> int:
        properties = {"operation": operation, "type": type}
        if name is not None:
            properties["name"] = name
        answer = asker.call(Message(properties=properties, body=body))
        return int(answer.properties["statusCode"])

    queue = f"q-{address}"
    binding = {"exchange": address, "destination": queue, "key": "k"}
    assert ask("CREATE", "exchange", address, {"routing": "direct"}) == 201
    assert ask("CREATE", "binding", None, binding) == 404
    assert ask("CREATE", "queue", queue, {}) == 201
    assert ask("CREATE", "binding", None, binding) == 201
    assert send(connection, address, keyed("k")) == [ACCEPTED]
    assert ask("DELETE", "binding", None, binding) == 204
    assert send(connection, address, keyed("k")) == [RELEASED]
    assert left(connection, queue) == ["k"]
