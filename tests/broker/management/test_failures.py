"""When the broker itself is at fault, the client learns that and no more, and goes on."""

from __future__ import annotations

import pytest

from ferrymq_broker.management import authorisation
from ferrymq_broker.management.entity import EntityType
from ferrymq_broker.management.manager import Manager
from ferrymq_broker.nodes.request import Request, Response
from ferrymq_broker.nodes.service import Service
from ferrymq_broker.nodes.terms import Party
from ferrymq_types.messaging import Accepted, AmqpValue, Properties, Rejected
from tests.broker.harness import Network, decode
from tests.broker.management.asker import Asker, read_answer, request_sections


class Broken(EntityType):
    """Things that cannot be looked at."""

    short = "broken"

    def identities(self) -> list[str]:
        return ["it"]

    def show(self, identity: str) -> dict[str, object] | None:
        raise RuntimeError("the password is sesame")


def test_a_failure_is_answered_without_the_reason(net: Network, asker: Asker) -> None:
    net.space.add(Service("$broken", net.space, Manager([Broken()]).answer))
    sender = asker.client.sender("$broken")
    for operation, type, name in (
        ("READ", "broken", "it"),
        ("QUERY", "org.amqp.management", "self"),
    ):
        sender.send_sections(
            *request_sections(operation, type, name, None, reply_to=asker.reply_to, message_id="1")
        )
        (delivery,) = asker.receiver.deliveries
        asker.receiver.settle(Accepted())
        answer = read_answer(delivery.payload)
        assert answer.status == 500
        assert answer.description == "the broker failed at this; its log says how"
        assert b"sesame" not in delivery.payload
    assert asker.ask("READ", "broker", "broker").status == 200


def test_a_response_that_cannot_be_encoded_costs_one_request(net: Network) -> None:
    def answer(request: Request) -> Response:
        return Response({}, object() if request.body == "bad" else "good")

    net.space.add(Service("svc", net.space, answer))
    client = net.connect()
    sender, receiver = client.sender("svc"), client.receiver("svc", credit=5)
    bad = sender.send_sections(Properties(message_id="1"), AmqpValue("bad"))
    assert isinstance(bad.remote_state, Rejected) and bad.remote_state.error is not None
    assert bad.remote_state.error.condition == "amqp:internal-error"
    sender.send_sections(Properties(message_id="2"), AmqpValue("good"))
    (delivery,) = receiver.deliveries
    assert AmqpValue("good") in decode(delivery.payload)


def test_every_request_has_to_be_allowed(
    net: Network, asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, str, str]] = []

    def nobody_deletes(party: Party, operation: str, entity: str) -> bool:
        asked.append((int(party.connection), operation, entity))
        return operation != "DELETE" and (operation, entity) != ("READ", "org.ferrymq.link")

    monkeypatch.setattr(authorisation, "authorise", nobody_deletes)
    assert asker.ask("CREATE", "queue", "q").status == 201
    refused = asker.ask("DELETE", "queue", "q")
    assert refused.status == 403
    assert "q" in net.space.nodes
    assert len(asker.query("broker")) == 1
    assert asker.query("link") == []
    number = int(asker.client.handler.id)
    assert asked == [
        (number, "CREATE", "org.ferrymq.queue"),
        (number, "DELETE", "org.ferrymq.queue"),
        (number, "QUERY", "org.amqp.management"),
        (number, "READ", "org.ferrymq.broker"),
        (number, "QUERY", "org.amqp.management"),
        (number, "READ", "org.ferrymq.link"),
    ]
