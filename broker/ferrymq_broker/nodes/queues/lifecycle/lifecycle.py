"""The life of the messages of one queue, as its policy has it.

The queue keeps messages in order and hands them out; everything that makes one message leave
otherwise than by a consumer, or not come in at all, is decided here.

The queue calls

- `admit` before it appends a message, and `on_appended` after, if the queue is `guarded` or the
  message `special`;
- `on_unlinked` whenever an entry has left, if the queue is `guarded` or the entry `expires`;
- `on_failed`, `on_rejected` and `expired` as they happen;
- `on_deserted` when its last link is gone.

It offers `append` (which neither admits nor calls `on_appended`), `drop`, `first_available`, its
counts, and `guarded`, which is set here: it says whether every message has to be looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

if TYPE_CHECKING:
    from ferrymq_broker.nodes.consumer import Consumer
    from ferrymq_broker.nodes.entry import Entry
    from ferrymq_broker.nodes.message import Message
    from ferrymq_broker.nodes.node import Refusal
    from ferrymq_broker.nodes.policy import QueuePolicy
    from ferrymq_broker.nodes.queues.queue import Queue
    from ferrymq_types.transport import Error

# What `Lifecycle.admit` answers.
APPEND: Final = 0  # let it in
HANDLED: Final = 1  # it has been taken, and is not to be appended (now)
REFUSED: Final = 2  # not taken: `refusal` says why


@final
class Lifecycle:
    """Of one queue. `refusal` is why the last message was refused."""

    __slots__ = ("queue", "policy", "refusal")

    def __init__(self, queue: Queue, policy: QueuePolicy) -> None:
        self.queue = queue
        self.policy = policy
        self.refusal: Refusal | None = None

    def admit(self, message: Message) -> i64:
        """Whether the message gets in: one of the three above."""
        return APPEND

    def on_appended(self, entry: Entry) -> None:
        """The message has its place. It may be gone again when this returns."""

    def on_unlinked(self, entry: Entry) -> None:
        """The entry has left the queue, for whatever reason."""

    def on_failed(self, consumer: Consumer, entry: Entry) -> bool:
        """A failed delivery has been counted; True if it was one too many.

        Then the message is on its way elsewhere, and the queue unlinks the entry.
        """
        return False

    def on_rejected(self, consumer: Consumer, entry: Entry, error: Error | None) -> None:
        """The consumer found the message invalid; the queue unlinks the entry."""

    def expired(self, entry: Entry) -> None:
        """The time of an available entry is over: it is dropped from the queue."""

    def room(self) -> i64:
        """How many more messages get in, for `Node.room`."""
        return 0x7FFF_FFFF_FFFF_FFFF

    def returned(self, entry: Entry) -> bool:
        """An entry a consumer held is available again; True if it is not to be offered any more.

        Called, when the queue is guarded or the entry expires, before the entry is made available;
        if True, the queue unlinks it.
        """
        return False

    def on_deserted(self) -> None:
        """The last link of the queue is gone."""

    def change_policy(self, policy: QueuePolicy) -> None:
        """The queue has another policy from now on."""
        self.policy = policy

    def close(self) -> None:
        """The queue is deleted."""

    def figures(self) -> dict[str, object]:
        """What has been counted, by its public names, for `Node.describe`."""
        return {}


def make_lifecycle(queue: Queue, policy: QueuePolicy) -> Lifecycle:
    """The lifecycle of a new queue."""
    return Lifecycle(queue, policy)
