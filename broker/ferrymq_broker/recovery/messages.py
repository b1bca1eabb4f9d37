"""Messages out of the store."""

from __future__ import annotations

from typing import Final, final

from ferrymq_broker.nodes.message import Message, restore
from ferrymq_broker.nodes.node import Agenda
from ferrymq_broker.nodes.queues.storing import HEAD, Head, body_id, read_head
from ferrymq_broker.store.errors import StoreDamaged
from ferrymq_broker.store.store import Store
from ferrymq_broker.store.tables import BODY
from ferrymq_codec.errors import DecodeError

# The connection that brought it is gone: it is nobody's now, and not the broker's own.
_ELSEWHERE: Final = -1


@final
class Messages:
    """Makes messages of the values of entries; one that several entries have is made once."""

    __slots__ = ("_agenda", "_payloads", "_shared")

    def __init__(self, agenda: Agenda, store: Store) -> None:
        self._agenda = agenda
        # Bodies that no entry has asked for, and those that one has.
        self._payloads: dict[int, bytes] = {}
        self._shared: dict[int, Message] = {}
        for record in store.scan(BODY):
            agenda.changes.has_id(record.id)
            self._payloads[record.id] = record.value

    def load(self, head: Head, value: bytes) -> Message:
        """The message of the value of an `ENTRY` or `SCHEDULED`. Raises `StoreDamaged`."""
        if not head.shared:
            return _restore(value[HEAD:], head)
        id = body_id(value)
        message = self._shared.get(id)
        if message is None:
            payload = self._payloads.pop(id, None)
            if payload is None:
                raise StoreDamaged(f"the body {id} is missing")
            message = _restore(payload, head)
            message.shared = True
            self._shared[id] = message
            self._agenda.bodies[message] = id
        return message

    def keep(self, value: bytes) -> None:
        """The value stays in the store, where nobody reads it: so does its body."""
        if read_head(value).shared:
            self._payloads.pop(body_id(value), None)

    def drop_orphans(self) -> int:
        """Drop the bodies that no entry has; how many there were."""
        orphans = self._payloads
        self._payloads = {}
        for id in orphans:
            self._agenda.changes.drop(BODY, id, 0)
        return len(orphans)


def _restore(payload: bytes, head: Head) -> Message:
    try:
        return restore(payload, head.format, head.special, 0 if head.own else _ELSEWHERE)
    except DecodeError as error:
        raise StoreDamaged(f"a message cannot be read: {error}") from error
