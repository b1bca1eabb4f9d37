"""The entity that a management node is about, and the rights that its operations need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.management.authorisation import expect_of_node, forbidden
from ferrymq_broker.management.errors import ManagementError
from ferrymq_broker.management.topics import SubscriptionEntities
from ferrymq_broker.nodes.disabling import sending_disabled
from ferrymq_broker.nodes.node import Node
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.nodes.topics.topic import Topic
from ferrymq_broker.values.names import PART
from ferrymq_broker.values.rights import DEAD_LETTER, SEND
from ferrymq_servicebus.management.failures import ENTITY_NOT_FOUND, no_entity

if TYPE_CHECKING:
    from ferrymq_broker.addresses.address_space import AddressSpace
    from ferrymq_broker.nodes.link_terms import Party
    from ferrymq_servicebus.management.asked import Asked


# What separates the address of a queue or subscription from the name of a queue of its own.
_SUB_QUEUE: Final = "/$"


class Entity:
    """The queue, topic or subscription with a native address.

    Rights are checked before the entity is looked up: the answer to a client without a right does
    not tell whether the entity exists.
    """

    def __init__(self, space: AddressSpace, native: str) -> None:
        self.space = space
        self.native = native
        self._subscriptions: SubscriptionEntities | None = None

    @property
    def is_part(self) -> bool:
        """Whether the address is that of a subscription, or of a queue that belongs to one."""
        return PART in self.native

    @property
    def subscriptions(self) -> SubscriptionEntities:
        """The operations on subscriptions."""
        if self._subscriptions is None:
            self._subscriptions = SubscriptionEntities(self.space)
        return self._subscriptions

    def expect_listen(self, asked: Asked) -> None:
        """Raise an error if the client may not receive from the entity."""
        self._expect("SETTLE", asked)

    def expect_send(self, asked: Asked) -> None:
        """Raise an error if the client may not send to the entity."""
        if not asked.request.party.access.permits(SEND, self.native):
            raise forbidden("sending", "entity", self.native)

    def expect_manage(self, asked: Asked) -> None:
        """Raise an error if the client may not change the entity."""
        self._expect("ADD-RULE", asked)

    def expect_any(self, asked: Asked) -> None:
        """Raise an error if the client may neither change the entity nor receive from it."""
        try:
            self.expect_manage(asked)
        except ManagementError:
            self.expect_listen(asked)

    def _expect(self, operation: str, asked: Asked) -> None:
        call = asked.call()
        owner, _, sub_queue = self.native.partition(_SUB_QUEUE)
        if sub_queue:
            if not call.party.access.permits(DEAD_LETTER, owner):
                raise forbidden(operation, "entity", self.native)
        elif self.is_part:
            self.subscriptions.authorise(operation, call)
        else:
            expect_of_node(call, operation, self.space, "queue")

    def queue(self) -> Queue:
        """Return the queue of the entity. Raises `RequestFailed` if there is none."""
        node = self.space.find(self.native)
        if isinstance(node, Queue):
            return node
        if self.is_part:
            cut = self.native.rfind(PART)
            topic = self.space.find(self.native[:cut])
            if isinstance(topic, Topic):
                for subscription in topic.subscriptions():
                    if subscription.name == self.native[cut + len(PART) :]:
                        return subscription.queue
        raise no_entity(self.named(self.native))

    def target(self, party: Party) -> Node:
        """Return the queue or topic to which messages are sent, made if the party may do so. Raises
        `RequestFailed` if there is none."""
        try:
            node, part = self.space.resolve(self.native, (), party.access)
        except BrokerError as error:
            if error.condition == ENTITY_NOT_FOUND:
                raise no_entity(self.named(self.native)) from error
            raise
        if part or not isinstance(node, Queue | Topic):
            raise no_entity(self.named(self.native))
        if node.policy.send_disabled:
            raise sending_disabled(node)
        return node

    def named(self, address: str) -> str:
        """Return the path by which clients know an entity."""
        personality = self.space.personality
        return address if personality is None else personality.named(address)
