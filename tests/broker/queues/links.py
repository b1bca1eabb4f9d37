"""Senders and receivers as the tests of queues need them."""

from __future__ import annotations

from ferrymq_types.filters import SelectorFilter
from ferrymq_types.messaging import ApplicationProperties, Data, Header, Properties, Source
from tests.broker.harness import Client, Receiver, Sender


def publish(
    sender: Sender,
    *bodies: bytes,
    priority: int | None = None,
    group: str | None = None,
    **properties: object,
) -> None:
    """Send messages of one data section each."""
    for body in bodies:
        sender.send_sections(
            Header() if priority is None else Header(priority=priority),
            Properties(group_id=group),
            ApplicationProperties(value=properties),
            Data(value=body),
        )


def consume(
    client: Client,
    address: str,
    credit: int = 0,
    *,
    selector: str | None = None,
    priority: int | None = None,
    exclusive: bool = False,
    mode: str | None = None,
    max_message_size: int = 0,
) -> Receiver:
    """Attach a receiver with these wishes."""
    filters = None if selector is None else {"selector": SelectorFilter(selector)}
    wishes: dict[str, object] = {}
    if priority is not None:
        wishes["priority"] = priority
    if exclusive:
        wishes["exclusive"] = True
    return client.receiver(
        address,
        credit=credit,
        source=Source(address=address, filter=filters, distribution_mode=mode),
        properties=wishes or None,
        max_message_size=max_message_size,
    )


def numbered(first: int, count: int) -> list[bytes]:
    """Bodies: decimal numbers from `first` on."""
    return [b"%d" % number for number in range(first, first + count)]
