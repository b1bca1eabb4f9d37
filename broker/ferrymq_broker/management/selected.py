"""REQUEUE and REMOVE: operations on selected messages of a queue, most often dead letters."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Final

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.filters.selector import selector
from ferrymq_broker.management.authorisation import expect_send
from ferrymq_broker.management.errors import (
    BAD_REQUEST,
    CONFLICT,
    NOT_FOUND,
    ManagementError,
    status_of,
)
from ferrymq_broker.management.operation import GREATEST, Call, Operation, Result
from ferrymq_broker.management.sliced_query import Steps
from ferrymq_broker.nodes.message_view import view_of
from ferrymq_broker.nodes.node import Node, Refusal
from ferrymq_broker.nodes.queues.lifecycle.dead_letters import SOURCE
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.nodes.queues.selection import MessageSelection
from ferrymq_broker.nodes.topics.topic import Topic
from ferrymq_broker.values.names import PART

if TYPE_CHECKING:
    from ferrymq_broker.addresses.address_space import AddressSpace
    from ferrymq_broker.nodes.entry import Entry

_CONDITIONS: Final = ("sequences", "reason", "source", "selector")
# The most numbers of messages that an answer repeats.
_TOLD: Final = 1000
# After so many messages, or bytes of them, other clients are served.
_TOGETHER: Final = 16
_BYTES: Final = 256 * 1024


class SelectedMessages:
    """The operations on selected messages of the queue that `find` returns.

    A request chooses messages by their numbers in PEEK, by the reason and the source of a dead
    letter, and by a selector. Messages that consumers hold, and messages that come during the
    operation, are left out. Each message is changed in one batch of the store, so after a crash
    it is either where it was or where it went.
    """

    def __init__(self, space: AddressSpace, find: Callable[[Call], Queue]) -> None:
        self._space = space
        self._find = find

    def operations(self) -> dict[str, Operation]:
        """Return the operations by name."""
        common = (*_CONDITIONS, "count", "dry-run")
        return {
            "REQUEUE": Operation(self.requeue, ("target", *common)),
            "REMOVE": Operation(self.remove, common),
        }

    def requeue(self, call: Call) -> Steps[Result]:
        """Handle REQUEUE: publish dead letters to the queues in which they died, or to `target`.

        Messages that are no dead letters stay, unless there is a target. If a queue refuses a
        message, the other messages for it stay, too; `refused` says why.
        """
        call.expect_only("target", *_CONDITIONS, "count", "dry-run")
        queue = self._find(call)
        selection, most = _selection(call), call.number("count", GREATEST, 1)
        work = Requeue(self._space, call, queue)
        if call.flag("dry-run"):
            return (yield from _look(queue, selection, most, work.leads_somewhere))
        count = bytes = 0
        with closing(queue.select(selection)) as chosen:
            for entry in chosen:
                if entry is not None:
                    bytes += int(entry.size)
                    if work.move(entry):
                        count += 1
                if count >= most:
                    break
                if entry is None or count % _TOGETHER == 0 or bytes >= _BYTES:
                    bytes = 0
                    yield None
        body: dict[str, object] = {"count": count}
        if work.refused:
            address, refusal = next(iter(work.refused.items()))
            if count == 0:
                status = CONFLICT if refusal.released else status_of(refusal.condition)
                raise ManagementError(status, f"{address[:200]!r}: {refusal.description}")
            body["refused"] = f"{address[:200]!r}: {refusal.description}"
        return Result(body, description=f"requeued {count}")

    def remove(self, call: Call) -> Steps[Result]:
        """Handle REMOVE: drop the selected messages. At least one condition is needed."""
        call.expect_only(*_CONDITIONS, "count", "dry-run")
        queue = self._find(call)
        if not any(call.arguments.get(name) for name in _CONDITIONS):
            raise ManagementError(
                BAD_REQUEST,
                f"say which messages, by {', '.join(_CONDITIONS)}; PURGE drops all of them",
            )
        selection, most = _selection(call), call.number("count", GREATEST, 1)
        if call.flag("dry-run"):
            return (yield from _look(queue, selection, most, lambda entry: True))
        count = bytes = 0
        with closing(queue.select(selection)) as chosen:
            for entry in chosen:
                if entry is not None:
                    bytes += int(entry.size)
                    queue.drop_selected(entry)
                    count += 1
                if count >= most:
                    break
                if entry is None or count % _TOGETHER == 0 or bytes >= _BYTES:
                    bytes = 0
                    yield None
        return Result({"count": count}, description=f"removed {count}")


class Requeue:
    """The work of one REQUEUE. `refused` has the addresses that have refused a message."""

    def __init__(self, space: AddressSpace, call: Call, queue: Queue) -> None:
        self._space = space
        self._party = call.party
        self._queue = queue
        self._address = call.text("target", "")
        self._nodes: dict[str, Node | None] = {}
        self.refused: dict[str, Refusal] = {}
        if self._address:
            # The right to send there has been checked.
            node = space.existing_target(self._address)
            if node is None:
                raise ManagementError(
                    NOT_FOUND, f"target: there is no node {self._address[:200]!r}"
                )
            if node is queue:
                raise ManagementError(BAD_REQUEST, "target: it is the node that has the messages")
            self._nodes[self._address] = node

    def move(self, entry: Entry) -> bool:
        """Publish a message again; return whether it has moved."""
        address = self._address_of(entry)
        if not address or address in self.refused:
            return False
        node = self._node(address)
        if node is None:
            return False
        moved, refusal = self._queue.move_entry(entry, node)
        if refusal is not None:
            self.refused[address] = refusal
        return moved

    def leads_somewhere(self, entry: Entry) -> bool:
        """Return whether there is a queue for a message."""
        address = self._address_of(entry)
        return bool(address) and self._node(address) is not None

    def _address_of(self, entry: Entry) -> str:
        if self._address:
            return self._address
        message = self._queue.entries.read_message(entry)
        source = None if message is None else view_of(message).message_annotations.get(SOURCE)
        return source if isinstance(source, str) else ""

    def _node(self, address: str) -> Node | None:
        """Return the node at an address; None if it does not exist, or if the party may not send
        there."""
        if address not in self._nodes:
            try:
                self._nodes[address] = node = self._find(address)
                if node is None:
                    self.refused[address] = Refusal("amqp:not-found", "it does not exist any more")
                elif node is self._queue:
                    self._nodes[address] = None
                    self.refused[address] = Refusal(
                        "amqp:not-allowed", "the messages died in this queue itself"
                    )
            except BrokerError as error:
                self._nodes[address] = None
                self.refused[address] = Refusal(error.condition, error.description)
        return self._nodes[address]

    def _find(self, address: str) -> Node | None:
        """Return the queue at an address, which may be that of a subscription. Raises
        `BrokerError`."""
        name, part, _ = address.rpartition(PART)
        topic = self._space.find(name) if part else None
        if not isinstance(topic, Topic):
            expect_send(self._party, self._space, address)
            return self._space.existing_target(address)
        expect_send(self._party, self._space, name)
        for each in topic.subscriptions():
            if each.address == address:
                return each.queue
        return None


def _look(
    queue: Queue, selection: MessageSelection, most: int, counts: Callable[[Entry], bool]
) -> Steps[Result]:
    """Count what an operation would change, and change nothing."""
    found: list[int] = []
    count = 0
    with closing(queue.select(selection)) as chosen:
        for entry in chosen:
            if entry is None:
                yield None
            elif counts(entry):
                count += 1
                if len(found) < _TOLD:
                    found.append(int(entry.sequence))
                if count >= most:
                    break
                if count % _TOGETHER == 0:
                    yield None
    return Result({"count": count, "sequences": found}, description="nothing was changed")


def _selection(call: Call) -> MessageSelection:
    """Return the selection of a request. Raises `ManagementError`, `BrokerError`."""
    sequences = call.arguments.get("sequences")
    numbers: set[int] | None = None
    if sequences is not None:
        if (
            not isinstance(sequences, list)
            or not sequences
            or any(isinstance(number, bool) or not isinstance(number, int) for number in sequences)
        ):
            raise ManagementError(BAD_REQUEST, "sequences: a list of integers is needed")
        numbers = {int(number) for number in sequences}
    words = call.text("selector", "")
    return MessageSelection(
        numbers,
        call.text("reason", ""),
        call.text("source", ""),
        selector(words) if words else None,
    )
