"""Links that carry requests and responses: only nodes that answer make pairs.

Request-Response Messaging with Link Pairing 1.0 §2.1.1, §2.2.1.
"""

from __future__ import annotations

import pytest

from ferrymq.engine.events import AttachReceived, DetachReceived
from ferrymq.engine.pairing import LINK_PAIR, is_paired, paired_properties
from ferrymq_broker.nodes.request import Request, Response
from ferrymq_broker.nodes.service import ServiceNode
from ferrymq_types.messaging import AmqpValue, Properties, Source, Target
from tests.broker.harness import Network, Receiver, Sender, decode


@pytest.mark.spec("pairing-2.2.1")
@pytest.mark.parametrize("sends", [True, False])
def test_a_paired_attach_is_refused(net: Network, sends: bool) -> None:
    net.declare("q")
    client = net.connect()
    mine, node = "mine", "q"
    if sends:
        link = client.session.attach_sender(
            "pair",
            source=Source(address=mine),
            target=Target(address=node),
            properties=paired_properties(),
        )
        client.links[link] = Sender(client, link)
    else:
        link = client.session.attach_receiver(
            "pair",
            source=Source(address=node),
            target=Target(address=mine),
            properties=paired_properties(),
        )
        client.links[link] = Receiver(client, link)
    net.run()
    attached, detached = (
        e for e in client.events if isinstance(e, AttachReceived | DetachReceived)
    )
    assert isinstance(attached, AttachReceived) and isinstance(detached, DetachReceived)
    attach = link.remote_attach
    assert attach is not None
    assert (attach.target if sends else attach.source) is None
    assert detached.closed and detached.error is not None
    assert detached.error.condition == "amqp:not-implemented"
    assert client.engine.opened and client.session.mapped


@pytest.mark.spec("pairing-2.2.1")
@pytest.mark.parametrize("value", [False, "true", 1, None])
def test_any_other_value_means_an_ordinary_link(net: Network, value: object) -> None:
    client = net.connect()
    link = client.session.attach_sender(
        "link", target=Target(address="q"), properties={"paired": value}
    )
    client.links[link] = Sender(client, link)
    net.run()
    assert link.usable


@pytest.mark.spec("pairing-2.1.1")
def test_the_broker_offers_pairing(net: Network) -> None:
    remote = net.connect().engine.remote_open
    assert remote is not None
    assert LINK_PAIR in (remote.offered_capabilities or [])
    assert LINK_PAIR not in (remote.desired_capabilities or [])


@pytest.mark.spec("pairing-2.2.1")
def test_a_node_that_answers_makes_a_pair(net: Network) -> None:
    asked: list[Request] = []

    def answer(request: Request) -> Response:
        asked.append(request)
        return Response({"status": 200}, "pong")

    net.space.add(ServiceNode("pinger", net.space, answer))
    client = net.connect()
    properties = paired_properties()
    responses = client.receiver(
        None, source=Source(address="pinger"), credit=1, name="pair", properties=properties
    )
    requests = client.sender(
        "pinger", source=Source(address=None), name="pair", properties=properties
    )
    for link in (requests.link, responses.link):
        attach = link.remote_attach
        assert attach is not None and is_paired(attach.properties) and link.usable
    requests.send_sections(Properties(message_id="1", reply_to="$me"), AmqpValue(value="ping"))
    assert [request.body for request in asked] == ["ping"]
    (delivery,) = responses.take()
    assert AmqpValue(value="pong") in decode(delivery.payload)


@pytest.mark.spec("pairing-2.2.1")
def test_a_node_that_answers_takes_ordinary_links_as_well(net: Network) -> None:
    net.space.add(ServiceNode("pinger", net.space, lambda request: Response({}, "pong")))
    receiver = net.connect().receiver("pinger")
    attach = receiver.link.remote_attach
    assert attach is not None and not is_paired(attach.properties) and receiver.link.usable
