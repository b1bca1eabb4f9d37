"""Durable sources in a virtual host with a personality: deliveries end with their link."""

from __future__ import annotations

from ferrymq_broker.nodes.personality import Personality
from ferrymq_broker.values.policy import QueuePolicy
from ferrymq_types.messaging import Source, TerminusDurability
from tests.broker.harness import Network
from tests.broker.stores import ManualStore


def test_the_deliveries_of_a_durable_source_end_with_its_link() -> None:
    net = Network(store=ManualStore())
    net.space.personality = Personality()
    net.declare("q", QueuePolicy(persist=True))
    durable = Source(address="q", durable=TerminusDurability.UNSETTLED_STATE, timeout=60)
    client = net.connect(container_id="me")
    client.sender("q").send(b"x")
    receiver = client.receiver(None, source=durable, name="kept", credit=1)
    assert receiver.bodies() == [b"x"]
    assert receiver.remote_source.durable is TerminusDurability.CONFIGURATION
    receiver.close(closed=False)
    assert net.connect().receiver("q", credit=1).bodies() == [b"x"]
