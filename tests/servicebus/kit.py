"""A virtual host with the personality, and what its deliveries have."""

from __future__ import annotations

from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_servicebus.personality import AzurePersonality
from ferrymq_types.messaging import ApplicationProperties, Properties
from tests.broker.harness import Network, Receiver, decode

DESTINATION = "com.microsoft:transfer-destination-address"


def network_of(**settings: object) -> Network:
    """A virtual host whose personality has these settings."""
    net = Network()
    personality = AzurePersonality(net.space, settings)
    net.space.personality = personality
    personality.declare()
    return net


def properties(payload: bytes) -> Properties:
    """The properties of a message, which has some."""
    return next(s for s in decode(payload) if isinstance(s, Properties))


def application(payload: bytes) -> dict[str, object]:
    """The application-properties of a message."""
    found = [s.value for s in decode(payload) if isinstance(s, ApplicationProperties)]
    return found[0] if found else {}


def first(net: Network, path: str = "orders", **wishes: object) -> Receiver:
    """A receiver that has got one message."""
    receiver = net.connect().receiver(path, credit=1, **wishes)  # type: ignore[arg-type]
    assert len(receiver.deliveries) == 1, receiver.error
    return receiver


def queue_of(net: Network, address: str) -> Queue:
    """The queue with a native address."""
    node = net.space.find(address)
    assert isinstance(node, Queue)
    return node
