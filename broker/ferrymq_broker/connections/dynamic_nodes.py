"""Dynamic nodes: their kind, their lifetime and their properties in the answer (AMQP 1.0
§3.5.9)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from ferrymq.node_properties import LIFETIME_POLICY, SUPPORTED_DIST_MODES
from ferrymq_broker.connections.node_capabilities import wants_topic
from ferrymq_broker.errors import BrokerError
from ferrymq_broker.nodes.node import (
    DELETE_ON_CLOSE,
    DELETE_ON_NO_LINKS,
    DELETE_ON_NO_LINKS_OR_MESSAGES,
    DELETE_ON_NO_MESSAGES,
)
from ferrymq_broker.values.policy import NodePolicy, QueuePolicy, TopicPolicy
from ferrymq_codec.containers import Array
from ferrymq_codec.scalars import Described
from ferrymq_types.messaging import (
    DeleteOnClose,
    DeleteOnNoLinks,
    DeleteOnNoLinksOrMessages,
    DeleteOnNoMessages,
)
from ferrymq_types.registry import typed

if TYPE_CHECKING:
    from ferrymq.engine.link import Link
    from ferrymq_broker.connections.client_limits import Allowance
    from ferrymq_broker.connections.connected_client import ConnectedClient
    from ferrymq_broker.nodes.node import Node


@final
class DynamicNodes:
    """The dynamic nodes of one connection, by the links for which they were created."""

    __slots__ = ("_client", "_allowance", "_by_link")

    def __init__(self, client: ConnectedClient, allowance: Allowance) -> None:
        self._client = client
        self._allowance = allowance
        self._by_link: dict[Link, Node] = {}

    def __len__(self) -> int:
        return len(self._by_link)

    def create(
        self, link: Link, asked: dict[str, object] | None, capabilities: Sequence[str]
    ) -> Node:
        """Create a node for a link: a topic if the capabilities say so, else a queue.

        `asked` has the dynamic-node-properties. Raises `BrokerError` if the node cannot have them.
        """
        properties: dict[str, object] = {} if asked is None else asked
        policy: NodePolicy
        if wants_topic(capabilities):
            if "move" in _modes(properties.get(SUPPORTED_DIST_MODES)):
                raise BrokerError(
                    "amqp:not-implemented", "a topic can only have distribution mode copy"
                )
            policy = TopicPolicy(durable=False)
        else:
            policy = QueuePolicy(durable=False)
        self._allowance.expect_node()
        lifetime = _lifetime(properties.get(LIFETIME_POLICY))
        node = self._client.space.create_dynamic(policy, lifetime)
        node.creator = True
        node.owner = self._client.id
        self._by_link[link] = node
        self._allowance.made(node)
        return node

    def release(self, link: Link) -> None:
        """Delete the node of a link that is gone, if its lifetime is that of the link."""
        node = self._by_link.pop(link, None)
        if node is None or node.deleted:
            return
        node.creator = False
        if node.lifetime == DELETE_ON_CLOSE:
            node.space.remove(node)
        else:
            node.reconsider_life()

    def withdraw(self, link: Link, made: Node | None) -> None:
        """Delete what was created for a link that is refused after all: its dynamic node, or the
        node `made` for its address."""
        node = self._by_link.pop(link, made)
        if node is not None:
            node.space.remove(node)


def told(node: Node) -> str:
    """Return the address of a dynamic node that its client is told."""
    personality = node.space.personality
    return node.address if personality is None else personality.named(node.address)


def node_properties(node: Node, asked: dict[str, object] | None) -> dict[str, object]:
    """Return the dynamic-node-properties of the answer: the true values of those that were asked
    for."""
    properties: dict[str, object] = {LIFETIME_POLICY: _policy(node.lifetime)}
    if asked is not None and SUPPORTED_DIST_MODES in asked:
        modes = ["copy"] if node.kind == "topic" else ["move", "copy"]
        properties[SUPPORTED_DIST_MODES] = Array("symbol", modes)
    return properties


def _modes(asked: object) -> list[object]:
    return list(asked.items) if isinstance(asked, Array) else [asked]


def _lifetime(asked: object) -> i64:
    policy = typed(asked) if isinstance(asked, Described) else asked
    if isinstance(policy, DeleteOnNoLinks):
        return DELETE_ON_NO_LINKS
    if isinstance(policy, DeleteOnNoMessages):
        return DELETE_ON_NO_MESSAGES
    if isinstance(policy, DeleteOnNoLinksOrMessages):
        return DELETE_ON_NO_LINKS_OR_MESSAGES
    return DELETE_ON_CLOSE


def _policy(lifetime: i64) -> object:
    if lifetime == DELETE_ON_NO_LINKS:
        return DeleteOnNoLinks()
    if lifetime == DELETE_ON_NO_MESSAGES:
        return DeleteOnNoMessages()
    if lifetime == DELETE_ON_NO_LINKS_OR_MESSAGES:
        return DeleteOnNoLinksOrMessages()
    return DeleteOnClose()
