"""Last values: of the messages with the same value of a key, the queue keeps only the newest.

The key is an application property or, if its name begins with ``x-``, a message annotation. A
message without it, or with a value that cannot be a key (a map, a list), is an ordinary message.
Numbers are compared by value whatever their width; numbers, strings and other types are never equal
to each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from ferrymq_broker.nodes.entry import AVAILABLE
from ferrymq_broker.nodes.message_view import view_of

if TYPE_CHECKING:
    from ferrymq_broker.nodes.entry import Entry
    from ferrymq_broker.nodes.message import BrokerMessage


def value_of(message: BrokerMessage, key: str) -> object:
    """Return the value of the key in the message, in a form that can be looked up; None without
    one."""
    view = view_of(message)
    value: object
    if key.startswith("x-"):
        value = view.message_annotations.get(key)
    else:
        value = view.application_properties.get(key)
    if value is None:
        return None
    if isinstance(value, bool | float):
        return (type(value), value)
    if isinstance(value, int):
        return int(value)
    try:
        hash(value)
    except TypeError:
        return None
    return value if isinstance(value, str | bytes) else (type(value), value)


@final
class LastValues:
    """The newest entry of each value of `key` in one queue."""

    __slots__ = ("key", "_newest", "_values")

    def __init__(self, key: str) -> None:
        self.key: str = key
        self._newest: dict[object, Entry] = {}
        # The values of the entries in the queue, by their sequences.
        self._values: dict[int, object] = {}

    def waiting(self, message: BrokerMessage) -> Entry | None:
        """Return the entry that this message would replace."""
        entry = self._newest.get(value_of(message, self.key))
        return entry if entry is not None and entry.state == AVAILABLE else None

    def add(self, entry: Entry) -> Entry | None:
        """Add an entry of the queue; return the entry that it replaces, which must leave."""
        value = value_of(entry.message, self.key)
        if value is None:
            return None
        before = self._newest.get(value)
        self._newest[value] = entry
        self._values[entry.sequence] = value
        return before if before is not None and before.state == AVAILABLE else None

    def is_back(self, entry: Entry) -> Entry | None:
        """Add an entry that a consumer gives back; return the entry that must leave, if any.

        That is the entry itself if there is a newer one, or an older entry that waits.
        """
        value = self._values.get(entry.sequence)
        if value is None:
            return None
        newest = self._newest.get(value)
        if newest is entry:
            return None
        if newest is not None and newest.sequence > entry.sequence:
            return entry
        # The newer entries have left: this one is the last again.
        self._newest[value] = entry
        return newest if newest is not None and newest.state == AVAILABLE else None

    def has(self, entry: Entry) -> bool:
        """Return whether the entry has a value of the key."""
        return int(entry.sequence) in self._values

    def forget(self, entry: Entry) -> None:
        """Forget an entry that has left the queue."""
        sequence: i64 = entry.sequence
        value = self._values.pop(sequence, None)
        if value is not None and self._newest.get(value) is entry:
            del self._newest[value]
