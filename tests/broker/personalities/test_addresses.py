"""The addresses of a personality: clients use its own, the broker's nodes keep theirs."""

from __future__ import annotations

import pytest

from ferrymq_broker.addresses.address_space import AddressSpace
from ferrymq_broker.nodes.personality import Personality
from ferrymq_broker.nodes.request import Request, Response
from ferrymq_broker.nodes.service import ServiceNode
from ferrymq_broker.values.policy import QueuePolicy
from ferrymq_types.messaging import (
    AmqpValue,
    ApplicationProperties,
    Data,
    Properties,
    Rejected,
    Source,
)
from tests.broker.access.guarded import guarded, is_open, lacks, send_to, user
from tests.broker.harness import Client, Network, Receiver, Sender, decode
from tests.broker.tokens.bearers import KEY, Bearer, shop
from tests.broker.tokens.makers import make_sas

SERVICE = "/$about"
RULES = """
[[queue]]
name = "orders"

[[queue]]
name = "other"

[[rule]]
who = "user:ann"
may = "send"
where = "orders"
"""


class Plural(Personality):
    """Clients say ``Queues/X`` for a queue; ``X/$about`` tells who asks."""

    def __init__(self, space: AddressSpace) -> None:
        super().__init__()
        self.space = space

    def native(self, address: str) -> str:
        return address.removeprefix("Queues/")

    def service(self, address: str) -> ServiceNode | None:
        entity = self.entity_of_service(address)
        if not entity or self.space.find(entity) is None:
            return None

        def answer(request: Request) -> Response:
            return Response({"entity": entity, "user": request.party.user or ""})

        return ServiceNode(address, self.space, answer)

    def entity_of_service(self, address: str) -> str:
        return address[: -len(SERVICE)] if address.endswith(SERVICE) else ""


@pytest.fixture
def net() -> Network:
    net = Network()
    net.space.personality = Plural(net.space)
    return net


def ask(client: Client, sender: Sender, receiver: Receiver) -> dict[str, object]:
    """Ask the service what it says about itself."""
    reply_to = receiver.remote_target.address or receiver.link.name
    sender.send_sections(Properties(reply_to=reply_to), AmqpValue(None))
    (delivery,) = receiver.deliveries
    (about,) = [s for s in decode(delivery.payload) if isinstance(s, ApplicationProperties)]
    return about.value


def test_links_and_nodes(net: Network) -> None:
    client = net.connect()
    sender = client.sender("Queues/orders")
    receiver = client.receiver("Queues/orders", credit=1)
    sender.send(b"x")
    assert receiver.bodies() == [b"x"]
    # The client compares the addresses of the answer with its own.
    assert sender.remote_target.address == "Queues/orders"
    assert receiver.remote_source.address == "Queues/orders"
    assert [name for name in net.space.nodes if "orders" in name] == ["orders"]


def test_an_address_of_the_client_comes_before_an_alias(net: Network) -> None:
    net.declare("orders")
    net.space.set_alias("short", "orders")
    sender = net.connect().sender("Queues/short")
    sender.send(b"x")
    assert net.queue("orders").message_count() == 1


def test_messages_that_name_their_address(net: Network) -> None:
    net.declare("orders")
    send_to(net.connect().sender(None), "Queues/orders")
    assert net.queue("orders").message_count() == 1


def test_messages_that_name_their_address_with_rules() -> None:
    net = guarded(RULES)
    net.space.personality = Plural(net.space)
    sender = user(net, "ann").sender(None)
    send_to(sender, "Queues/orders")
    assert net.queue("orders").message_count() == 1


def test_rules_are_for_the_addresses_of_the_broker() -> None:
    net = guarded(RULES)
    net.space.personality = Plural(net.space)
    client = user(net, "ann")
    assert is_open(client.sender("Queues/orders"))
    assert lacks(client.sender("Queues/other")) == "send at 'Queues/other'"


def test_rejected_messages_return_to_a_reply_to(net: Network) -> None:
    net.declare("back")
    net.declare("orders", QueuePolicy(return_rejected=True))
    client = net.connect()
    client.sender("orders").send_sections(Properties(reply_to="Queues/back"), Data(value=b"x"))
    client.receiver("orders", credit=1).settle(Rejected())
    assert net.queue("back").message_count() == 1


def test_the_scope_of_a_token() -> None:
    net = shop()
    net.space.personality = Plural(net.space)
    bearer = Bearer(net)
    token = make_sas("sb://localhost/Queues/q1", KEY)
    assert bearer.put(token, "sb://localhost/Queues/q1") == 202
    assert bearer.may_send("Queues/q1") and not bearer.may_send("Queues/q2")


def test_a_service(net: Network) -> None:
    net.declare("orders")
    before = dict(net.space.nodes)
    client = net.connect()
    sender = client.sender("Queues/orders/$about")
    receiver = client.receiver(
        None, source=Source(address="Queues/orders/$about"), credit=10, name="answers"
    )
    assert ask(client, sender, receiver) == {"entity": "orders", "user": ""}
    # The service goes with its last link.
    sender.close()
    assert "orders/$about" in net.space.nodes
    receiver.close()
    assert net.space.nodes == before and net.space.services == 0
    assert is_open(client.sender("Queues/orders/$about"))


def test_no_service_for_what_does_not_exist(net: Network) -> None:
    client = net.connect()
    assert client.sender("missing/$about").error is not None
    assert client.receiver("missing/$about").error is not None
    send_to(client.sender(None), "missing/$about")
    assert not [name for name in net.space.nodes if "missing" in name]


def test_any_right_at_the_entity_lets_a_client_attach_to_its_service() -> None:
    net = guarded(RULES)
    net.space.personality = Plural(net.space)
    client = user(net, "ann")
    sender = client.sender("orders/$about")
    receiver = client.receiver("orders/$about", credit=1, name="answers")
    assert ask(client, sender, receiver) == {"entity": "orders", "user": "ann"}
    assert lacks(client.sender("other/$about")) == "send at 'other/$about'"
    assert lacks(client.receiver("other/$about")) == "receive at 'other/$about'"
    # The rights of links are looked at again from time to time.
    assert client.handler.links.reauthorize() == 0
    assert is_open(sender) and is_open(receiver)


def test_a_service_that_every_client_may_use() -> None:
    net = guarded(RULES)
    net.space.personality = Plural(net.space)
    net.space.open_services.add("other/$about")
    client = user(net, "ann")
    assert is_open(client.sender("other/$about")) and is_open(client.receiver("other/$about"))
