"""Recovery of messages from the store."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import Final, final

from ferrymq_broker.nodes.message import BrokerMessage, restore
from ferrymq_broker.nodes.node import Agenda
from ferrymq_broker.nodes.queues.persistence import HEAD, EntryHead, body_id, read_head
from ferrymq_broker.recovery.read_ahead import ReadAhead
from ferrymq_broker.store.errors import StoreDamaged
from ferrymq_broker.store.store import Store
from ferrymq_broker.store.tables import BODY
from ferrymq_codec.errors import DecodeError

# The origin of recovered messages: a connection that no longer exists, not the broker itself.
ELSEWHERE: Final = -1
# The size noted for a body that must stay for entries kept aside.
_KEPT: Final = -1


@final
class MessageLoader:
    """A maker of messages from the values of entries; a message shared by entries is made once.

    The body of a shared message is read for the first entry, and may leave memory before the next.
    Each body takes 24 bytes here besides its message.
    """

    __slots__ = ("_agenda", "_store", "_ids", "_messages", "_sizes", "_reading")

    def __init__(self, agenda: Agenda, store: Store, reading: ReadAhead) -> None:
        self._agenda = agenda
        self._store = store
        self._reading = reading
        # The ids of all bodies, in order; the message of each once an entry needs it, and the size
        # of its payload.
        self._ids: array[int] = array("q")
        for record in store.scan(BODY):
            self._ids.append(record.id)
            reading.add(len(record.value))
        count = len(self._ids)
        self._messages: list[BrokerMessage | None] = [None] * count
        self._sizes: array[int] = array("q", bytes(8 * count))
        if count:
            agenda.changes.has_id(self._ids[-1])

    def load(self, head: EntryHead, value: bytes) -> tuple[BrokerMessage, int]:
        """Return the message of the value of an `ENTRY` or `SCHEDULED`, and the size of its
        payload. Raises `StoreDamaged`."""
        if not head.shared:
            return _restore(value[HEAD:], head), len(value) - HEAD
        id = body_id(value)
        at = self._find(id)
        message = self._messages[at]
        if message is None:
            payload = self._store.get(BODY, id, 0)
            if payload is None:
                raise StoreDamaged(f"the body {id} is missing")
            self._reading.add(len(payload))
            message = _restore(payload, head)
            message.shared = True
            self._messages[at] = message
            self._sizes[at] = len(payload)
            self._agenda.bodies[message] = id
        return message, self._sizes[at]

    def keep(self, value: bytes) -> None:
        """Keep the body of a value in the store without reading it."""
        if read_head(value).shared:
            self._sizes[self._find(body_id(value))] = _KEPT

    def drop_orphans(self) -> int:
        """Drop the bodies that no entry uses, and return their number."""
        count = 0
        for id, message, size in zip(self._ids, self._messages, self._sizes, strict=True):
            if message is None and size != _KEPT:
                self._agenda.changes.drop(BODY, id, 0)
                count += 1
        return count

    def _find(self, id: int) -> int:
        at = bisect_left(self._ids, id)
        if at == len(self._ids) or self._ids[at] != id:
            raise StoreDamaged(f"the body {id} is missing")
        return at


def origin_of(head: EntryHead) -> int:
    """Return the origin of a restored message."""
    return 0 if head.own else ELSEWHERE


def _restore(payload: bytes, head: EntryHead) -> BrokerMessage:
    try:
        return restore(payload, head.format, head.special, origin_of(head))
    except DecodeError as error:
        raise StoreDamaged(f"the record of a message cannot be read: {error}") from error
