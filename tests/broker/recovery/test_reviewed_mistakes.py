"""What a mistake of the broker's costs where there is a store: nothing that was acknowledged."""

from __future__ import annotations

from typing import NoReturn

import pytest

from ferrymq_broker.nodes.node import DELETE_ON_NO_MESSAGES
from ferrymq_broker.nodes.service import ServiceNode
from ferrymq_broker.values.policy import QueuePolicy
from ferrymq_types.messaging import Accepted, Data, Header
from tests.broker.harness import Network, encode
from tests.broker.recovery.kit import browse, store_of


def fail(*ignored: object) -> NoReturn:
    raise ValueError("a mistake")


def test_a_dead_letter_is_in_the_batch_in_which_it_died(net: Network) -> None:
    mortal = net.space.create_dynamic(QueuePolicy(), DELETE_ON_NO_MESSAGES)
    net.declare("q", QueuePolicy(dead_letter="dead"))
    net.declare("dead")
    client = net.connect()
    first, second = client.sender(mortal.address), client.sender("q")
    store = store_of(net)
    store.held = True
    net.space.on_change.append(fail)
    first.link.send(encode(Header(ttl=0), Data(value=b"x")))
    sent = second.link.send(encode(Header(durable=True, ttl=0), Data(value=b"y")))
    with pytest.raises(ValueError, match="a mistake"):
        net.run()
    net.space.on_change.clear()
    # Whatever has been written so far gets to disk, and nothing else.
    store.held = False
    if store.complete():
        store.held = True
        net.broker.on_stable(net.now)
    store.held = True
    net.run()
    assert sent.remote_state is None
    store.release()
    net.run()
    assert isinstance(sent.remote_state, Accepted)
    net.restart()
    assert browse(net, "dead") == [b"y"]


def test_a_mistake_with_one_dead_letter_does_not_cost_the_others(net: Network) -> None:
    net.declare("q", QueuePolicy(dead_letter="made", message_ttl=1000))
    sender = net.connect().sender("q")
    for body in (b"a", b"b", b"c"):
        sender.send_encoded(encode(Header(durable=True), Data(value=body)))
    # The node of the dead letters is made for the first of them.
    net.space.on_change.append(fail)
    with pytest.raises(ValueError, match="a mistake"):
        net.advance(2)
    net.space.on_change.clear()
    net.run()
    net.restart()
    assert browse(net, "made") == [b"b", b"c"]


def test_what_was_told_before_a_mistake_waits_for_the_disk(net: Network) -> None:
    net.space.add(ServiceNode("service", net.space, fail))
    client = net.connect()
    service, sender = client.sender("service"), client.sender("q")
    store = store_of(net)
    store.held = True
    sent = sender.link.send(encode(Header(durable=True), Data(value=b"a")))
    service.link.send(encode(Data(value=b"x")))
    with pytest.raises(ValueError, match="a mistake"):
        net.run()
    # As the server does with a connection that a mistake was made about.
    client.handler.close(None, net.now)
    net.run()
    assert sent.remote_state is None
    store.release()
    net.run()
    assert isinstance(sent.remote_state, Accepted)
