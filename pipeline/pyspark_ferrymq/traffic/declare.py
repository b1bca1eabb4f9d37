"""Creation of the traffic's nodes, or a check that they exist, over management
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
"""The capabilities that a connection for `declare` and `expect` must desire."""

DELIVERY_LIMIT: Final = 3
"""The delivery-limit of the queue of parcels."""

# The node types that are asked for a name, in this order.
_TYPES: Final = ("stream", "queue", "exchange", "topic", "alias")


async def declare(connection: ferrymq.Connection, traffic: Traffic) -> None:
    """Create missing nodes. Existing nodes are not changed.

    Raises `AmqpSourceError` if that is impossible, with the commands that create the nodes.
    """
    if LINK_PAIR not in connection.remote_offered_capabilities:
        raise AmqpSourceError(
            "the broker cannot create nodes over AMQP; create them there and give --no-create:"
            f" {_wanted(traffic)}"
        )
    async with connection.management(replies="pair") as management:
        for kind, name, settings in _nodes(traffic):
            try:
                await management.create(f"org.ferrymq.{kind}", name, settings)
            except ManagementError as error:
                # A conflict means that the node exists with other settings.
                if error.status != HTTPStatus.CONFLICT:
                    raise AmqpSourceError(
                        f"the {kind} {name!r} was not created: {error.description};"
                        f" create the nodes there and give --no-create: {_wanted(traffic)}"
                    ) from None


async def expect(connection: ferrymq.Connection, traffic: Traffic) -> None:
    """Check that all nodes exist: links to missing names would create queues.

    Raises `AmqpSourceError` if a node is missing. A broker without management is not checked.
    """
    if LINK_PAIR not in connection.remote_offered_capabilities:
        return
    async with connection.management(replies="pair") as management:
        for place in traffic.places:
            if not await _is_there(management, traffic.address(place)):
                raise AmqpSourceError(
                    f"there is no {traffic.address(place)!r}, and --no-create was given;"
                    f" these commands create all nodes: {_wanted(traffic)}"
                )


async def _is_there(management: ManagementClient, name: str) -> bool:
    """Return whether a node has the name; true if the broker does not tell."""
    for kind in _TYPES:
        try:
            await management.read(f"org.ferrymq.{kind}", name)
        except ManagementError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                continue
        return True
    return False


def _nodes(traffic: Traffic) -> list[tuple[str, str, dict[str, object]]]:
    """Return type, name and settings of each node; nodes that others refer to come first."""
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
    """Return the commands that create all nodes."""
    return "; ".join(
        " ".join(
            ["ferrymq admin create", kind, name]
            + [f"{key}={value}" for key, value in settings.items()]
        )
        for kind, name, settings in _nodes(traffic)
    )
