"""The policy history: earlier settings of a queue, which hold for the messages that came before a
change.

When `message_ttl` or `last_value_key` of a queue change, messages in it keep their settings. Their
records do not have these settings; so the history has the last sequence for which earlier settings
hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from ferrymq_broker.store.errors import StoreDamaged

if TYPE_CHECKING:
    from ferrymq_broker.nodes.queues.entries import QueueEntries
    from ferrymq_broker.values.policy import QueuePolicy


@final
class PolicyHistory:
    """The earlier settings of one queue: each has the sequence `last` up to which another ttl
    holds; messages up to `unkeyed` have no last-value key."""

    __slots__ = ("unkeyed", "_lasts", "_ttls")

    def __init__(self) -> None:
        self.unkeyed: i64 = 0
        self._lasts: list[int] = []
        self._ttls: list[int] = []

    def change(self, before: QueuePolicy, after: QueuePolicy, entries: QueueEntries) -> None:
        """Remember the earlier settings, before the queue gets another policy."""
        first = entries.first_sequence()
        last = entries.published
        while self._lasts and self._lasts[0] < first:
            del self._lasts[0]
            del self._ttls[0]
        if before.message_ttl != after.message_ttl:
            self._lasts.append(last)
            self._ttls.append(before.message_ttl)
        if before.last_value_key != after.last_value_key:
            self.unkeyed = last

    def ttl(self, sequence: i64, now: i64) -> i64:
        """Return the `message_ttl` for a message; `now` is that of the present policy."""
        for last, ttl in zip(self._lasts, self._ttls, strict=True):
            if sequence <= last:
                return ttl
        return now

    def last(self) -> i64:
        """Return the last sequence for which an earlier setting holds."""
        last = self.unkeyed
        if self._lasts and self._lasts[-1] > last:
            last = self._lasts[-1]
        return last

    def fields(self) -> dict[str, object]:
        """Return the fields for `restore`."""
        return {
            "unkeyed": int(self.unkeyed),
            "ttls": [[last, ttl] for last, ttl in zip(self._lasts, self._ttls, strict=True)],
        }

    def restore(self, fields: dict[str, object]) -> None:
        """Restore the earlier settings that `fields` returned. Raises `StoreDamaged`."""
        unkeyed = fields.get("unkeyed", 0)
        ttls = fields.get("ttls", [])
        if not isinstance(unkeyed, int) or not isinstance(ttls, list):
            raise StoreDamaged("the stored earlier settings of a queue are invalid")
        self.unkeyed = int(unkeyed)
        for pair in ttls:
            if not isinstance(pair, list) or len(pair) != 2:
                raise StoreDamaged("the stored earlier settings of a queue are invalid")
            last, ttl = pair
            if not isinstance(last, int) or not isinstance(ttl, int):
                raise StoreDamaged("the stored earlier settings of a queue are invalid")
            self._lasts.append(int(last))
            self._ttls.append(int(ttl))
