"""Sub-queues: queues that belong to another queue, for example for its dead letters.

A sub-queue has the address ``QUEUE/NAME``. It is made, stored, restored and deleted with its owner.
Its limits are those of its owner, for its own messages. Only the broker publishes to it.
"""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING, Final

from ferrymq_broker.values.policy import QueuePolicy

if TYPE_CHECKING:
    from ferrymq_broker.nodes.node import Space

# The origin of sub-queues (`Node.origin`).
OWNED: Final = "owner"


def sub_queue_address(owner: str, name: str) -> str:
    """Return the address of the sub-queue of this name."""
    return f"{owner}/{name}"


def sub_queue_policy(owner: QueuePolicy) -> QueuePolicy:
    """Return the policy of the sub-queues of a queue.

    Their messages do not expire, and do not become dead letters again.
    """
    return QueuePolicy(
        priorities=owner.priorities,
        max_length=owner.max_length,
        max_bytes=owner.max_bytes,
        overflow="drop-head" if owner.overflow in ("drop-head", "dead-letter") else "reject",
        durable=owner.durable,
        persist=owner.persist,
        lock_duration=owner.lock_duration,
        deferral=owner.deferral,
    )


def expect_free_sub_queues(
    space: Space, address: str, policy: QueuePolicy, present: Container[str] | None = None
) -> None:
    """Raise `BrokerError` if the address of a sub-queue of this policy is taken, unless the
    sub-queue is `present` already."""
    for name in policy.sub_queues:
        if present is None or name not in present:
            space.expect_free(sub_queue_address(address, name))
