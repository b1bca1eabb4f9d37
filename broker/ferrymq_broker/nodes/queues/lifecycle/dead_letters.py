"""Dead letters: messages that a queue sends to another address because it cannot keep them.

Dead letters are collected, and published when the queue has its turn on the agenda. So a message
that goes through a thousand queues one after the other takes a thousand turns instead of a thousand
nested calls, and code that drops a message does not find another one in its place.

Dead letters of messages that expired or were dropped at the head are published in slices. The entry
keeps its record until its dead letter is published: both change in one batch of the store, so after
a crash the message is either in the old queue or in the next one. A message that a consumer has
rejected is published in the same pass and batch, because the client is told of the settlement with
that batch.

The annotations of a dead letter (all begin with ``x-opt-deadletter-``) tell the ``reason``, the
``source`` (the queue) and the ``time`` of the last dead-lettering; the ``condition``,
``description`` and ``info`` of the consumer that rejected it; the ``first-reason`` and
``first-source``; the ``count`` of dead-letterings; and the ``path``: the queues that dead-lettered
it since a consumer last decided about it. A message that is about to enter a queue of its path
again goes in a circle and is dropped.

A queue with `return_rejected` publishes a rejected message to its reply-to first. The rights of its
publisher are needed for that: no message gets where its publisher could not have sent it. Messages
that the broker has sent on are not returned, so no message is returned twice.

Full queues that dead-letter the head of each other make another kind of circle, in which no message
comes back to its queue. Messages that are dropped because of one another share a `Chain`, and each
queue dead-letters only once in a chain.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.event_log import log
from ferrymq_broker.nodes.message_view import view_of
from ferrymq_broker.nodes.node import Node, Refusal
from ferrymq_broker.nodes.outgoing_header import delivered_before, readdressed
from ferrymq_broker.nodes.queues.lifecycle.schedule import (
    DELIVERY_DELAY,
    DELIVERY_TIME,
    SCHEDULED_ENQUEUE_TIME,
)
from ferrymq_broker.slices import LETTER, SlicedTask, Slices
from ferrymq_codec.scalars import Symbol, Timestamp, UInt

if TYPE_CHECKING:
    from ferrymq_broker.nodes.entry import Entry
    from ferrymq_broker.nodes.message import BrokerMessage
    from ferrymq_broker.nodes.queues.entries import QueueEntries
    from ferrymq_types.transport import Error

# The reasons for dead-lettering.
REJECTED: Final = "rejected"
EXPIRED: Final = "expired"
DELIVERY_LIMIT: Final = "delivery-limit"
MAX_LENGTH: Final = "max-length"
MAX_BYTES: Final = "max-bytes"
FORWARDING: Final = "forwarding"

PREFIX: Final = "x-opt-deadletter-"
REASON: Final = "x-opt-deadletter-reason"
SOURCE: Final = "x-opt-deadletter-source"
TIME: Final = "x-opt-deadletter-time"
COUNT: Final = "x-opt-deadletter-count"
CONDITION: Final = "x-opt-deadletter-condition"
DESCRIPTION: Final = "x-opt-deadletter-description"
INFO: Final = "x-opt-deadletter-info"
FIRST_REASON: Final = "x-opt-deadletter-first-reason"
FIRST_SOURCE: Final = "x-opt-deadletter-first-source"
PATH: Final = "x-opt-deadletter-path"
ORIGINAL_TTL: Final = "x-opt-original-ttl"

# A path of more queues than this counts as a circle.
_LONGEST: Final = 1024
_MOST: Final = 0xFFFFFFFF


@final
class Chain:
    """The reason why a message had to leave the queue `node`: before it, another message had to
    leave another queue."""

    __slots__ = ("node", "cause")

    def __init__(self, node: Node, cause: Chain | None) -> None:
        self.node: Node = node
        self.cause: Chain | None = cause

    def contains(self, node: Node) -> bool:
        """Return whether the chain has a message that left this queue."""
        link: Chain | None = self
        while link is not None:
            if link.node is node:
                return True
            link = link.cause
        return False


@final
class _Present:
    """The dead letter that is being published now: messages dropped meanwhile are dropped because
    of it."""

    __slots__ = ("chain",)

    def __init__(self) -> None:
        self.chain: Chain | None = None


_present: Final = _Present()


@final
class DeadLetter:
    """The message of an `entry` on its way to `address`, because of `reason` and perhaps an
    `error`. With `returns` it goes to its reply-to if possible. `message` is the message of an
    entry that has left its queue already; None while the entry keeps its record."""

    __slots__ = ("entry", "message", "address", "reason", "error", "chain", "returns")

    def __init__(
        self,
        entry: Entry,
        address: str,
        reason: str,
        error: Error | None,
        chain: Chain,
        returns: bool,
    ) -> None:
        self.entry: Entry = entry
        self.message: BrokerMessage | None = None
        self.address: str = address
        self.reason: str = reason
        self.error: Error | None = error
        self.chain: Chain = chain
        self.returns: bool = returns


@final
class DeadLetters(Node):
    """The dead letters of one queue. It is a node on the agenda, but no address names it.

    It counts messages that were `sent`, `dropped` and `returned` to their publishers; `circles`
    counts those of the dropped messages that went in a circle.
    """

    __slots__ = (
        "queue",
        "sent",
        "returned",
        "dropped",
        "circles",
        "_entries",
        "_urgent",
        "_letters",
        "_rest",
        "_complained",
    )

    def __init__(self, queue: Node, entries: QueueEntries) -> None:
        super().__init__(queue.address, queue.space)
        self.queue: Node = queue
        self._entries = entries
        self.sent: int = 0
        self.returned: int = 0
        self.dropped: int = 0
        self.circles: int = 0
        # Dead letters caused by consumers, which do not wait for another slice.
        self._urgent: deque[DeadLetter] = deque()
        self._letters: deque[DeadLetter] = deque()
        # The task that continues in further slices, so that the node itself can have a turn in
        # every pass.
        self._rest = _Rest(self)
        self._complained = False

    def send(
        self,
        entry: Entry,
        address: str,
        reason: str,
        error: Error | None,
        returns: bool = False,
    ) -> None:
        """Publish the message of an entry, which leaves the queue next, to `address`; without an
        address, drop it.

        With `returns`, publish it to its reply-to, and to `address` only if that is not possible.
        """
        if not address and not returns:
            self.dropped += 1
            return
        cause = _present.chain
        if cause is not None and cause.contains(self.queue):
            self._drop_circle()
            return
        letter = DeadLetter(entry, address, reason, error, Chain(self.queue, cause), returns)
        if _is_by_client(reason):
            letter.message = _message_of(entry, entry.message)
            self._urgent.append(letter)
        else:
            self._letters.append(letter)
            self._entries.keep_record(entry)
        self.agenda.letters += 1
        self.agenda.slices.spend(LETTER)
        self.touch()

    def dispatch(self) -> None:
        """Publish the collected dead letters, as far as the slice allows."""
        slices = self.agenda.slices
        try:
            while self._urgent:
                self._publish_next(self._urgent)
            self.publish_some(slices)
        except BaseException:
            # An error must not stop the other dead letters: their messages have left the queue.
            if self._urgent or self._letters:
                self.touch()
            raise
        if self._letters:
            slices.add(self._rest)

    def publish_some(self, slices: Slices) -> bool:
        """Publish dead letters that may wait, as far as the slice allows; return whether none is
        left."""
        while self._letters and not slices.is_spent():
            self._publish_next(self._letters)
        return not self._letters

    def publish_all(self) -> None:
        """Publish all dead letters at once, because the queue is deleted."""
        while self._urgent:
            self._publish_next(self._urgent)
        while self._letters:
            self._publish_next(self._letters)

    def _publish_next(self, letters: deque[DeadLetter]) -> None:
        """Publish the first of these dead letters and release its entry."""
        letter = letters.popleft()
        entry = letter.entry
        agenda = self.agenda
        agenda.letters -= 1
        agenda.slices.spend(LETTER)
        if letter.message is not None:
            self._publish(letter, letter.message)
            return
        try:
            message = self._entries.read_message(entry)
            if message is None:
                self._drop(letter, "the message cannot be read from disk")
            else:
                self._publish(letter, _message_of(entry, message))
        finally:
            self._entries.release(entry)

    def _return(self, letter: DeadLetter, message: BrokerMessage) -> bool:
        """Publish the message to its reply-to; return whether that was possible."""
        access = self.space.publishers.get(int(message.origin), self.space.strangers)
        if message.origin == 0 or access is None:
            # The broker has sent the message on already, or its publisher's rights are not known.
            return False
        properties = view_of(message).properties
        reply_to = None if properties is None else properties.reply_to
        if reply_to is None:
            return False
        try:
            address = self.space.meant_by(reply_to)
            access.require_send(address, reply_to)
            node = self.space.existing_target(address)
        except BrokerError:
            return False
        if node is None or node.address.startswith("$"):
            return False
        if self._hand_over(letter, message, node, []) is not None:
            return False
        self.returned += 1
        return True

    def _hand_over(
        self, letter: DeadLetter, message: BrokerMessage, node: Node, path: list[str]
    ) -> Refusal | None:
        _present.chain = letter.chain
        try:
            return node.publish(readdressed(message, self._annotations(letter, message, path)))
        finally:
            _present.chain = None

    def _publish(self, letter: DeadLetter, message: BrokerMessage) -> None:
        if letter.returns and self._return(letter, message):
            return
        if not letter.address:
            self.dropped += 1
            return
        by_client = _is_by_client(letter.reason)
        path = [] if by_client else _path(message)
        here = self.queue.address
        # An opaque message has no annotations for a path: it can be dead-lettered only once.
        again = message.opaque and message.origin == 0 and not by_client
        if again or here in path or len(path) >= _LONGEST:
            self._drop_circle()
            return
        if not by_client:
            path.append(here)
        try:
            node = self._target(letter.address)
        except BrokerError as error:
            self._drop(letter, error.description)
            return
        if node.address.startswith("$"):
            # Messages to such an address are commands to the broker; a dead letter must not be one.
            self._drop(letter, "the address belongs to a service of the broker")
            return
        if node.address in path:
            self._drop_circle()
            return
        refusal = self._hand_over(letter, message, node, path)
        if refusal is None or refusal.partly:
            self.sent += 1
        else:
            self._drop(letter, refusal.description)

    def _target(self, address: str) -> Node:
        """Return the node for dead letters to an address; ``/NAME`` may be a sub-queue. Raises
        `BrokerError`."""
        if address.startswith("/"):
            sub_queue = self.queue.sub_queue(address[1:])
            if sub_queue is not None:
                return sub_queue
        return self.space.target(address)

    def _annotations(
        self, letter: DeadLetter, message: BrokerMessage, path: list[str]
    ) -> dict[str | int, object]:
        """Return the annotations of the message, with those about this dead-lettering."""
        here = self.queue.address
        result: dict[str | int, object] = dict(view_of(message).message_annotations)
        for key in (DELIVERY_TIME, DELIVERY_DELAY, SCHEDULED_ENQUEUE_TIME):
            # The schedule of the message is over: it must not wait again.
            result.pop(key, None)
        for key in (CONDITION, DESCRIPTION, INFO, PATH):
            result.pop(key, None)
        count = result.get(COUNT)
        deaths = count + 1 if isinstance(count, int) and 0 <= count < _MOST else 1
        result[REASON] = letter.reason
        result[SOURCE] = here
        result[TIME] = Timestamp(self.agenda.wall)
        result[COUNT] = UInt(deaths)
        if FIRST_REASON not in result or FIRST_SOURCE not in result:
            result[FIRST_REASON] = letter.reason
            result[FIRST_SOURCE] = here
        error = letter.error
        if error is not None:
            result[CONDITION] = Symbol(error.condition)
            if error.description is not None:
                result[DESCRIPTION] = error.description
            if error.info:
                result[INFO] = dict(error.info)
        if path:
            result[PATH] = path
        if message.ttl >= 0:
            result[ORIGINAL_TTL] = UInt(message.ttl)
        personality = self.space.personality
        if personality is not None:
            personality.dead_letter(letter.entry, result)
        return result

    def _drop_circle(self) -> None:
        self.circles += 1
        self.dropped += 1

    def _drop(self, letter: DeadLetter, reason: str) -> None:
        self.dropped += 1
        if not self._complained:
            self._complained = True
            log.warning(
                "dead letters are dropped",
                address=self.queue.address,
                to=letter.address,
                death=letter.reason,
                reason=reason,
            )

    def forgive(self) -> None:
        """Report failures again, because the policy has changed."""
        self._complained = False


@final
class _Rest(SlicedTask):
    """The task for dead letters that did not fit into a slice."""

    __slots__ = ("dead_letters",)

    def __init__(self, dead_letters: DeadLetters) -> None:
        super().__init__()
        self.dead_letters = dead_letters

    def go_on(self, slices: Slices) -> bool:
        """Publish dead letters, as far as the slice allows."""
        return self.dead_letters.publish_some(slices)


def _message_of(entry: Entry, message: BrokerMessage) -> BrokerMessage:
    """Return the message with the delivery count of its entry."""
    return delivered_before(message, i64(entry.failures)) if entry.attempts > 0 else message


def is_own_dead_letter(message: BrokerMessage) -> bool:
    """Return whether the broker has sent the message, as a dead letter."""
    return message.origin == 0 and COUNT in view_of(message).message_annotations


def _is_by_client(reason: str) -> bool:
    """Return whether the reason is the outcome of a consumer."""
    return reason in (REJECTED, DELIVERY_LIMIT)


def _path(message: BrokerMessage) -> list[str]:
    value = view_of(message).message_annotations.get(PATH)
    if not isinstance(value, list):
        return []
    return [step for step in value if isinstance(step, str)]
