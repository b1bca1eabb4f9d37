"""Durable messages, and what a client finds after the broker has been stopped and started."""

from __future__ import annotations

from ferrymq.engine.delivery import IncomingDelivery, OutgoingDelivery
from ferrymq_broker.store.tables import DELIVERY, TERMINUS
from ferrymq_types.messaging import (
    ApplicationProperties,
    Data,
    Header,
    MessageAnnotations,
    Properties,
    Source,
    TerminusDurability,
    TerminusExpiryPolicy,
)
from ferrymq_types.unions import Section
from tests.broker.harness import Client, Network, Receiver, Sender, text
from tests.broker.stores import ManualStore


def stored_network(**options: int) -> Network:
    """A broker with a store."""
    return Network(store=ManualStore(), **options)  # type: ignore[arg-type]


def store_of(net: Network) -> ManualStore:
    """The store that the broker has."""
    assert net.store is not None
    return net.store


def stored(net: Network) -> set[tuple[int, int]]:
    """Table and id of all records, those of termini aside."""
    return {key[:2] for key in store_of(net).records if key[0] not in (TERMINUS, DELIVERY)}


def send(
    sender: Sender,
    *bodies: bytes,
    durable: bool = True,
    ttl: int | None = None,
    priority: int = 4,
    properties: Properties | None = None,
    annotations: dict[str | int, object] | None = None,
    application: dict[str, object] | None = None,
) -> list[OutgoingDelivery]:
    """Send messages with the sections that are given, each in a pass of its own."""
    sent = []
    for body in bodies:
        sections: list[Section] = [Header(durable=durable, ttl=ttl, priority=priority)]
        if annotations is not None:
            sections.append(MessageAnnotations(value=annotations))
        if properties is not None:
            sections.append(properties)
        if application is not None:
            sections.append(ApplicationProperties(value=application))
        sent.append(sender.send_sections(*sections, Data(value=body)))
    return sent


def take_all(net: Network, address: str, client: Client | None = None) -> list[IncomingDelivery]:
    """What there is for a new consumer; it keeps it, and stays."""
    receiver = (client or net.connect()).receiver(address, credit=1000)
    assert receiver.error is None, receiver.error
    return receiver.take()


def browse(net: Network, address: str) -> list[bytes]:
    """The bodies that there are, in their order."""
    client = net.connect()
    bodies = client.receiver(address, credit=1000, mode="copy").bodies()
    client.close()
    return bodies


def bodies(deliveries: list[IncomingDelivery]) -> list[bytes]:
    """The bodies of these deliveries."""
    return [text(delivery.payload) for delivery in deliveries]


def subscribe(
    client: Client,
    address: str,
    name: str,
    *,
    policy: TerminusExpiryPolicy = TerminusExpiryPolicy.NEVER,
    timeout: int = 0,
    filter: dict[str, object] | None = None,
    capabilities: list[str] | None = None,
    credit: int = 100,
) -> Receiver:
    """A durable subscription."""
    source = Source(
        address=address,
        durable=TerminusDurability.UNSETTLED_STATE,
        expiry_policy=policy,
        timeout=timeout,
        filter=filter,
        capabilities=["topic", *(capabilities or [])],
    )
    receiver = client.receiver(address, source=source, name=name, credit=credit)
    assert receiver.error is None, receiver.error
    return receiver
