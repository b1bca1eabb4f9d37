"""When the broker itself is at fault, the client learns that and no more, and goes on."""

from __future__ import annotations

from ferrymq_broker.management.entity import EntityType
from ferrymq_broker.management.manager import Manager
from ferrymq_broker.nodes.request import Request, Response
from ferrymq_broker.nodes.service import ServiceNode
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
    net.space.add(ServiceNode("$broken", net.space, Manager([Broken()]).answer))
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
        assert answer.description == "the operation failed in the broker; its log has the details"
        assert b"sesame" not in delivery.payload
    assert asker.ask("READ", "broker", "broker").status == 200


def test_a_response_that_cannot_be_encoded_costs_one_request(net: Network) -> None:
    def answer(request: Request) -> Response:
        return Response({}, object() if request.body == "bad" else "good")

    net.space.add(ServiceNode("svc", net.space, answer))
    client = net.connect()
    sender, receiver = client.sender("svc"), client.receiver("svc", credit=5)
    bad = sender.send_sections(Properties(message_id="1"), AmqpValue("bad"))
    assert isinstance(bad.remote_state, Rejected) and bad.remote_state.error is not None
    assert bad.remote_state.error.condition == "amqp:internal-error"
    sender.send_sections(Properties(message_id="2"), AmqpValue("good"))
    (delivery,) = receiver.deliveries
    assert AmqpValue("good") in decode(delivery.payload)
