"""The broker's own addresses: a wildcard is no way to them, and a response goes nowhere that its
asker may not send to."""

from __future__ import annotations

import pytest

from ferrymq.engine.delivery import OutgoingDelivery
from ferrymq_broker.nodes.request import Request, Response
from ferrymq_broker.nodes.service import ServiceNode
from ferrymq_types.messaging import Accepted, AmqpValue, Properties, Source
from tests.broker.access.guarded import (
    UNAUTHORIZED,
    guarded,
    is_open,
    lacks,
    rejected,
    user,
)
from tests.broker.harness import Client, Network

RULES = """
[[queue]]
name = "mine"

[[queue]]
name = "yours"

[[alias]]
name = "alias"
to = "yours"

[[alias]]
name = "mine.no-more"
to = "yours"

[[alias]]
name = "other"
to = "mine"

[[rule]]
who = "user:ann"
may = "*"
where = ["mine*", "dynamic.*"]

[[rule]]
who = ["user:root"]
may = "*"
where = ["*"]

[[rule]]
who = "user:insider"
may = "*"
where = "$own"
"""


@pytest.fixture
def net() -> Network:
    net = guarded(RULES)
    for address in ("$management", "$cbs", "$own"):
        net.space.nodes.setdefault(address, ServiceNode(address, net.space, answer))
    return net


asked: list[object] = []


def answer(request: Request) -> Response:
    asked.append(request.body)
    return Response({}, "done")


def ask(client: Client, reply_to: str) -> OutgoingDelivery:
    return client.sender("$management").send_sections(
        Properties(reply_to=reply_to), AmqpValue(value="do it")
    )


def test_whoever_got_in_may_speak_to_those_that_ask_for_rights_themselves(net: Network) -> None:
    for name in ("ann", "root"):
        client = user(net, name)
        for address in ("$management", "$cbs"):
            assert is_open(client.sender(address)) and is_open(client.receiver(address))


def test_all_others_take_a_rule_of_their_own(net: Network) -> None:
    root = user(net, "root")
    for address in ("$own", "$other", "$management::x"):
        assert lacks(root.sender(address)) == f"send at '{address}'"
        assert lacks(root.receiver(address)) == f"receive at '{address}'"
    insider = user(net, "insider")
    assert is_open(insider.sender("$own")) and is_open(insider.receiver("$own"))


@pytest.mark.parametrize(
    "reply_to", ["yours", "alias", "mine.no-more", "missing", "yours::x", "$own"]
)
def test_a_response_goes_nowhere_that_its_asker_may_not_send_to(
    net: Network, reply_to: str
) -> None:
    asked.clear()
    assert rejected(ask(user(net, "ann"), reply_to)) == UNAUTHORIZED
    # Nothing was done.
    assert asked == []
    assert net.queue("yours").message_count() == 0


def test_a_response_goes_where_he_may(net: Network) -> None:
    ann = user(net, "ann")
    assert ask(ann, "mine").remote_state == Accepted()
    assert ask(ann, "other").remote_state == Accepted()
    assert net.queue("mine").message_count() == 2
    private = ann.receiver(None, source=Source(dynamic=True), credit=1)
    address = private.remote_source.address
    assert address is not None
    assert ask(ann, address).remote_state == Accepted()
    assert len(private.deliveries) == 1
