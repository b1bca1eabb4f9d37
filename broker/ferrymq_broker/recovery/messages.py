"""Messages out of the store."""

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

# The connection that brought it is gone: it is nobody's now, and not the broker's own.
ELSEWHERE: Final = -1
# The size of a body that stays for entries which are kept aside.
_KEPT: Final = -1


@final
class MessageLoader:
    """Makes messages of the values of entries; one that several entries have is made once.

    The body of such a message is read when the first entry asks for it, and may leave memory before
    the next one does. Of each body there are 24 bytes here, beside its message.
    """

    __slots__ = ("_agenda", "_store", "_ids", "_messages", "_sizes", "_reading")

    def __init__(self, agenda: Agenda, store: Store, reading: ReadAhead) -> None:
        self._agenda = agenda
        self._store = store
        self._reading = reading
        # The ids of all bodies, in order; the message of each once an entry has asked for it, and
        # the size of its payload.
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
        """Make or find the message of the value of an `ENTRY` or `SCHEDULED`, and the size of its
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
        """Leave the body of a value in the store."""
        if read_head(value).shared:
            self._sizes[self._find(body_id(value))] = _KEPT

    def drop_orphans(self) -> int:
        """Drop the bodies that no entry has; how many there were."""
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
    """The origin of a message that was restored."""
    return 0 if head.own else ELSEWHERE


def _restore(payload: bytes, head: EntryHead) -> BrokerMessage:
    try:
        return restore(payload, head.format, head.special, origin_of(head))
    except DecodeError as error:
        raise StoreDamaged(f"a message cannot be read: {error}") from error
