"""Requests to the management node: each is answered once, whatever it asks for, or refused."""

from __future__ import annotations

import functools
from random import Random

from ferrymq_broker.management.setup import install
from ferrymq_broker.values.policy import QueuePolicy
from ferrymq_servicebus.hub_tables import HUB_TABLES
from ferrymq_types.messaging import Properties
from tests.broker.harness import Network
from tests.broker.management.asker import Asker, read_answer, request_sections
from tests.fuzz.mutation.values import mutate_values
from tests.fuzz.pool import message


def one(data: bytes) -> None:
    """Send the request to a broker of its own, and read the answer if one comes."""
    net = Network(max_nodes=20)
    install(net.space, net.broker, dialects=HUB_TABLES.dialects)
    net.declare("queue", QueuePolicy())
    asker = Asker(net)
    delivery = asker.sender.send_encoded(data)
    if not asker.client.engine.opened or not asker.sender.link.usable:
        # The request was to end the connection, or the link.
        return
    assert delivery.remote_settled or delivery.remote_state is not None
    answers = asker.receiver.deliveries
    assert len(answers) <= 1
    for answer in answers:
        found = read_answer(answer.payload)
        assert 200 <= found.status < 600
        assert found.status != 500, found.description


@functools.cache
def _operations() -> list[tuple[str, str, dict[str, object]]]:
    bodies: list[dict[str, object]] = [
        {},
        {"type": "queue", "max-length": 5},
        {"name": "queue", "attributeNames": ["name", "depth"], "entityType": "queue"},
        {"source": "queue", "destination": "other", "count": 5},
        {"exchange": "exchange", "target": "queue", "key": "a.*"},
        {"count": 10, "messages": ["one"]},
    ]
    found = []
    net = Network()
    service = install(net.space, net.broker, dialects=HUB_TABLES.dialects).service
    assert service is not None
    asker = Asker(net)
    answer = asker.ask("GET-OPERATIONS", "org.amqp.management", "self")
    for type, operations in answer.map().items():
        for operation in operations:  # type: ignore[attr-defined]
            found += [(operation, type, body) for body in bodies]
    return found


def _request(operation: str, type: str, name: str, body: object) -> bytes:
    return message(*request_sections(operation, type, name, body, reply_to="$me", message_id="id"))


def seeds() -> list[bytes]:
    """Every operation of every type of entity, with some bodies."""
    found = [_request(o, t, "queue", body) for o, t, body in _operations()]
    found += [
        _request("GET-TYPES", "org.amqp.management", "self", None),
        _request("QUERY", "org.amqp.management", "self", {"attributeNames": []}),
        message(Properties(reply_to="queue")),
    ]
    return found


def mutate(random: Random, data: bytes) -> bytes:
    """Other values."""
    return mutate_values(random, data)
