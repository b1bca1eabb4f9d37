"""Makes the nodes that traffic goes to, or looks whether they are there, over management
(docs/broker/management.md)."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

import ferrymq
from ferrymq import ManagementClient, ManagementError
from ferrymq.engine.pairing import LINK_PAIR
from pyspark_ferrymq.errors import AmqpSourceError
from pyspark_ferrymq.traffic.scenario import Traffic

CAPABILITIES: Final = [LINK_PAIR]
"""What a connection desires that nodes are to be made over."""

DELIVERY_LIMIT: Final = 3
"""How often the delivery of a parcel may fail."""

# What may have the name of a node, in the order in which it is looked for.
_TYPES: Final = ("stream", "queue", "exchange", "topic", "alias")


async def declare(connection: ferrymq.Connection, traffic: Traffic) -> None:
    """Make the nodes that are not there. Those that are stay as they are.

    Raises `AmqpSourceError` when this cannot be done from here, saying what would make them.
    """
    if LINK_PAIR not in connection.remote_offered_capabilities:
        raise AmqpSourceError(
            "the broker does not let nodes be made over AMQP; make them there and say --no-create:"
            f" {_wanted(traffic)}"
        )
    async with connection.management(replies="pair") as management:
        for kind, name, settings in _nodes(traffic):
            try:
                await management.create(f"org.ferrymq.{kind}", name, settings)
            except ManagementError as error:
                # With other settings it is there as well.
                if error.status != HTTPStatus.CONFLICT:
                    raise AmqpSourceError(
                        f"the {kind} {name!r} was not made: {error.description};"
                        f" have them made, and say --no-create: {_wanted(traffic)}"
                    ) from None


async def expect(connection: ferrymq.Connection, traffic: Traffic) -> None:
    """Make nothing: links to names that are not there would make queues of them.

    Raises `AmqpSourceError` when one of the nodes is not there. A broker without management is not
    asked; what its links make is its own affair.
    """
    if LINK_PAIR not in connection.remote_offered_capabilities:
        return
    async with connection.management(replies="pair") as management:
        for place in traffic.places:
            if not await _is_there(management, traffic.address(place)):
                raise AmqpSourceError(
                    f"there is no {traffic.address(place)!r}, and nothing is to be made;"
                    f" what would make all: {_wanted(traffic)}"
                )


async def _is_there(management: ManagementClient, name: str) -> bool:
    """Whether something has the name; true where the broker does not tell."""
    for kind in _TYPES:
        try:
            await management.read(f"org.ferrymq.{kind}", name)
        except ManagementError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                continue
        return True
    return False


def _nodes(traffic: Traffic) -> list[tuple[str, str, dict[str, object]]]:
    """Type, name and settings of each; what others refer to first."""
    nodes: list[tuple[str, str, dict[str, object]]] = []
    for place in traffic.places:
        if place.node == "stream":
            nodes.append(("stream", traffic.address(place), {"partitions": place.partitions}))
        else:
            nodes.append(("queue", traffic.dead, {}))
            settings: dict[str, object] = {
                "delivery-limit": DELIVERY_LIMIT,
                "dead-letter": traffic.dead,
            }
            nodes.append(("queue", traffic.address(place), settings))
    return nodes


def _wanted(traffic: Traffic) -> str:
    """The commands that make all nodes."""
    return "; ".join(
        " ".join(
            ["ferrymq admin create", kind, name]
            + [f"{key}={value}" for key, value in settings.items()]
        )
        for kind, name, settings in _nodes(traffic)
    )
