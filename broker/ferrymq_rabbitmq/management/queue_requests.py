"""Requests about queues, streams among them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING

from ferrymq_broker.config.nodes import policy_attributes
from ferrymq_broker.management.authorisation import expect_of_node, may
from ferrymq_broker.management.errors import CREATED
from ferrymq_broker.management.operation import Call
from ferrymq_broker.management.queues import QueueEntities
from ferrymq_broker.management.streams import StreamEntities
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.nodes.streams.stream import Stream
from ferrymq_broker.values.policy import QueuePolicy, StreamPolicy
from ferrymq_broker.values.rights import RECEIVE
from ferrymq_codec.scalars import UInt, ULong
from ferrymq_rabbitmq.address_v2 import RESERVED, is_queue_name, vhost_of
from ferrymq_rabbitmq.arguments import arguments_of, labels_of, queue_policy, type_of
from ferrymq_rabbitmq.management.request_refused import (
    RequestRefused,
    arguments_in,
    bad_request,
    flag_in,
)
from ferrymq_rabbitmq.pattern_policies import policies_of

if TYPE_CHECKING:
    from ferrymq_broker.addresses.address_space import AddressSpace
    from ferrymq_broker.nodes.link_terms import Party

# Who leads a queue: there is one node.
_LEADER = "ferrymq"


class QueueRequests:
    """The handlers of requests about the queues of one virtual host."""

    def __init__(self, space: AddressSpace) -> None:
        self._space = space
        self._queues = QueueEntities(space)
        self._streams = StreamEntities(space)

    def declare(
        self, party: Party, name: str, body: Mapping[str, object], generated: bool = False
    ) -> tuple[HTTPStatus, object]:
        """Make a queue, or check that it exists as declared: with the same arguments. A policy for
        its name adds to them. A queue that the broker's configuration declares fits whatever the
        client says of its limits. A name that the broker has `generated` may be a reserved one."""
        if name.startswith(RESERVED) and not generated:
            raise RequestRefused(
                HTTPStatus.FORBIDDEN,
                f"queue {name[:200]!r} starts with the reserved prefix {RESERVED}",
            )
        if not is_queue_name(name):
            raise bad_request(f"a queue cannot have the name {name[:200]!r} here")
        exclusive = flag_in(body, "exclusive", False)
        arguments = arguments_in(body)
        policy = queue_policy(
            policies_of(self._space).queue_arguments(name, arguments),
            flag_in(body, "durable", True),
            exclusive,
            flag_in(body, "auto_delete", False),
        )
        policy = replace(policy, labels=labels_of(arguments))
        kind = self._queues if isinstance(policy, QueuePolicy) else self._streams
        call = Call(party, name, policy_attributes(policy))
        kind.authorise("CREATE", call)
        node = self._space.nodes.get(name)
        if isinstance(node, Queue):
            node.expect_unlocked(party.connection)
        configured = node is not None and node.origin == "configuration"
        if configured and node is not None and node.kind == kind.short:
            return HTTPStatus.OK, self._described(node)
        if isinstance(node, Queue | Stream) and _is_declared_so(node, policy):
            # Another client may have made it just now: wait until that is stored.
            self._space.agenda.changes.claim()
            return HTTPStatus.OK, self._described(node)
        made = kind.create(call).status == CREATED
        node = self._space.nodes[name]
        if made and exclusive and isinstance(node, Queue):
            node.lock_to(party.connection)
        return HTTPStatus.CREATED if made else HTTPStatus.OK, self._described(node)

    def describe(self, party: Party, name: str) -> dict[str, object]:
        """Return the description of a queue. Raises `RequestRefused` if there is none."""
        expect_of_node(Call(party, name), "READ", self._space, "queue")
        return self._described(self._existing(name))

    def delete(self, party: Party, name: str) -> dict[str, object]:
        """Delete a queue, and return how many messages were ready: none if it did not exist, and
        none for a stream."""
        expect_of_node(Call(party, name), "DELETE", self._space, "queue")
        node = self._space.nodes.get(name)
        if not isinstance(node, Queue | Stream):
            return {"message_count": ULong(0)}
        if isinstance(node, Queue):
            node.expect_unlocked(party.connection)
        count = int(node.entries.available) if isinstance(node, Queue) else 0
        self._space.remove(node)
        return {"message_count": ULong(count)}

    def purge(self, party: Party, name: str) -> dict[str, object]:
        """Drop the messages that no consumer holds, and return how many there were.

        A party that may receive at the queue could also take them one by one.
        """
        if not may(party, RECEIVE, self._space, name):
            expect_of_node(Call(party, name), "PURGE", self._space, "queue")
        queue = self._existing(name)
        if not isinstance(queue, Queue):
            raise bad_request(f"the stream {name[:200]!r} cannot be purged")
        queue.expect_unlocked(party.connection)
        count = int(queue.entries.available)
        queue.purge()
        return {"message_count": ULong(count)}

    def _existing(self, name: str) -> Queue | Stream:
        node = self._space.find(name)
        if not isinstance(node, Queue | Stream):
            raise RequestRefused(
                HTTPStatus.NOT_FOUND,
                f"queue {name[:200]!r} in vhost {vhost_of(self._space)!r} not found",
            )
        return node

    def _described(self, node: object) -> dict[str, object]:
        assert isinstance(node, Queue | Stream)
        policy = node.policy
        queue = node if isinstance(node, Queue) else None
        return {
            "name": node.address,
            "vhost": vhost_of(self._space),
            "type": type_of(policy),
            "durable": policy.durable,
            "exclusive": queue is not None and queue.locked_to != 0,
            "auto_delete": isinstance(policy, QueuePolicy) and policy.auto_delete == 0,
            "arguments": arguments_of(policy.labels),
            "leader": _LEADER,
            "replicas": [_LEADER],
            "message_count": ULong(node.message_count()),
            "consumer_count": UInt(node.consumer_count() if queue is not None else node.links),
        }


def _is_declared_so(node: Queue | Stream, policy: QueuePolicy | StreamPolicy) -> bool:
    """Return whether a queue was declared with the same arguments and flags. Its settings may
    differ: policies may have changed since."""
    there = node.policy
    if isinstance(there, QueuePolicy) and isinstance(policy, QueuePolicy):
        return (there.labels, there.durable, there.auto_delete == 0) == (
            policy.labels,
            policy.durable,
            policy.auto_delete == 0,
        )
    return (
        isinstance(there, StreamPolicy)
        and isinstance(policy, StreamPolicy)
        and (there.labels == policy.labels)
    )
