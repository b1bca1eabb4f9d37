"""What a mistake of the broker's costs: an exception where there should be none.

What raises here is what an embedding program may hand in: nothing else can be made to.
"""

from __future__ import annotations

from typing import NoReturn

import pytest

from ferrymq_broker.nodes.node import DELETE_ON_NO_MESSAGES
from ferrymq_broker.nodes.service import ServiceNode
from ferrymq_broker.values.policy import QueuePolicy
from ferrymq_types.messaging import Accepted, Data, Header
from tests.broker.harness import Network, encode


def fail(*ignored: object) -> NoReturn:
    raise ValueError("a mistake")


def test_what_was_not_taken_in_is_not_accepted(net: Network) -> None:
    net.space.add(ServiceNode("service", net.space, fail))
    client = net.connect()
    sender = client.sender("service")
    sent = sender.link.send(encode(Data(value=b"x")))
    with pytest.raises(ValueError, match="a mistake"):
        net.run()
    net.run()
    assert sent.remote_state is None
    other = net.connect().sender("q")
    (fine,) = other.send(b"y")
    assert isinstance(fine.remote_state, Accepted)
    client.lose()
    assert sent.remote_state is None


def test_a_mistake_at_a_time_does_not_cost_later_times() -> None:
    # The mistake comes between what is removed and its record.
    net = Network(memory=True)
    net.connect()
    net.declare("mortal", QueuePolicy(auto_delete=1000))
    net.declare("later", QueuePolicy(auto_delete=2000))
    net.broker.finish_pass()
    net.space.on_change.append(fail)
    with pytest.raises(ValueError, match="a mistake"):
        net.advance(1.1)
    net.space.on_change.clear()
    net.advance(1.1)
    assert net.space.find("later") is None


def test_a_mistake_in_writing_does_not_cost_others_their_messages(net: Network) -> None:
    broken = net.connect()
    broken.receiver("q", credit=1)
    fine = net.connect().receiver("q", credit=1)
    sender = net.connect().sender("q")
    broken.handler.output._write = fail
    sender.link.send(encode(Data(value=b"x")))
    sender.link.send(encode(Data(value=b"y")))
    with pytest.raises(ValueError, match="a mistake"):
        net.run()
    broken.handler.output._write = lambda data: None
    broken.lose()
    assert fine.bodies() == [b"y"]


def test_a_mistake_in_a_node_does_not_cost_others_their_turn(net: Network) -> None:
    mortal = net.space.create_dynamic(QueuePolicy(), DELETE_ON_NO_MESSAGES)
    net.declare("other")
    client = net.connect()
    receiver = net.connect().receiver("other", credit=10)
    first, second = client.sender(mortal.address), client.sender("other")
    net.space.on_change.append(fail)
    first.link.send(encode(Header(ttl=0), Data(value=b"x")))
    second.link.send(encode(Data(value=b"y")))
    with pytest.raises(ValueError, match="a mistake"):
        net.run()
    net.space.on_change.clear()
    client.lose()
    assert receiver.bodies() == [b"y"]
    net.connect().sender("other").send(b"z")
    assert receiver.bodies() == [b"y", b"z"]
