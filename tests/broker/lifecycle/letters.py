"""Messages with the sections that matter here, and what is to be read of those that come out."""

from __future__ import annotations

from ferrymq.engine.delivery import IncomingDelivery, OutgoingDelivery
from ferrymq_types.messaging import (
    ApplicationProperties,
    Data,
    Header,
    MessageAnnotations,
    Properties,
    Rejected,
)
from ferrymq_types.unions import Section
from tests.broker.harness import Network, Sender, header, message_annotations, text


def send(
    sender: Sender,
    body: bytes,
    *,
    ttl: int | None = None,
    priority: int | None = None,
    properties: Properties | None = None,
    annotations: dict[str | int, object] | None = None,
    application: dict[str, object] | None = None,
    settled: bool = False,
) -> OutgoingDelivery:
    """Send one message with the sections that are given."""
    sections: list[Section] = []
    if ttl is not None or priority is not None:
        sections.append(Header(ttl=ttl, priority=4 if priority is None else priority))
    if annotations is not None:
        sections.append(MessageAnnotations(value=annotations))
    if properties is not None:
        sections.append(properties)
    if application is not None:
        sections.append(ApplicationProperties(value=application))
    return sender.send_sections(*sections, Data(value=body), settled=settled)


def drain(net: Network, address: str) -> list[IncomingDelivery]:
    """Everything that a new consumer of the address gets; it keeps it."""
    return net.connect().receiver(address, credit=1000).take()


def bodies(net: Network, address: str) -> list[bytes]:
    """The bodies of everything that a new consumer of the address gets."""
    return [text(delivery.payload) for delivery in drain(net, address)]


def browse(net: Network, address: str) -> list[bytes]:
    """The bodies of everything that waits at the address; it stays there."""
    client = net.connect()
    receiver = client.receiver(address, mode="copy", credit=1000)
    found = receiver.bodies()
    client.close()
    return found


def refused(delivery: OutgoingDelivery) -> tuple[str, str]:
    """The condition and the description with which a message was rejected."""
    state = delivery.remote_state
    assert isinstance(state, Rejected) and state.error is not None
    return state.error.condition, state.error.description or ""


def ttl_of(delivery: IncomingDelivery) -> int | None:
    """header.ttl."""
    return header(delivery.payload).ttl


def death(delivery: IncomingDelivery) -> dict[str | int, object]:
    """What the annotations tell of the deaths of a message, without the prefix."""
    return {
        str(key).removeprefix("x-opt-deadletter-"): value
        for key, value in message_annotations(delivery.payload).items()
        if str(key).startswith("x-opt-deadletter-")
    }


def figure(net: Network, address: str, name: str) -> object:
    """One of the figures with which a queue describes itself."""
    return net.queue(address).describe()[name]


__all__ = [
    "bodies",
    "browse",
    "death",
    "drain",
    "figure",
    "refused",
    "send",
    "ttl_of",
]
