"""Settings that hold for messages to come, and not for those that are there.

When `message_ttl` or `last_value_key` of a queue change, messages keep what they have. Their
records do not say what that is; so it is remembered up to which message the settings were others.
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
    """The earlier settings of one queue: up to the sequence `last` of each era the ttl was
    another, and messages up to `unkeyed` are known by no key."""

    __slots__ = ("unkeyed", "_lasts", "_ttls")

    def __init__(self) -> None:
        self.unkeyed: i64 = 0
        self._lasts: list[int] = []
        self._ttls: list[int] = []

    def change(self, before: QueuePolicy, after: QueuePolicy, entries: QueueEntries) -> None:
        """Remember the earlier settings: the queue has another policy from now on."""
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
        """Return the `message_ttl` that holds for a message; `now` is that of the policy."""
        for last, ttl in zip(self._lasts, self._ttls, strict=True):
            if sequence <= last:
                return ttl
        return now

    def last(self) -> i64:
        """Return the last sequence that an earlier setting holds for."""
        last = self.unkeyed
        if self._lasts and self._lasts[-1] > last:
            last = self._lasts[-1]
        return last

    def fields(self) -> dict[str, object]:
        """Return what `restore` reads."""
        return {
            "unkeyed": int(self.unkeyed),
            "ttls": [[last, ttl] for last, ttl in zip(self._lasts, self._ttls, strict=True)],
        }

    def restore(self, fields: dict[str, object]) -> None:
        """Restore the earlier settings that `fields` returned. Raises `StoreDamaged`."""
        unkeyed = fields.get("unkeyed", 0)
        ttls = fields.get("ttls", [])
        if not isinstance(unkeyed, int) or not isinstance(ttls, list):
            raise StoreDamaged("the earlier settings of a queue make no sense")
        self.unkeyed = int(unkeyed)
        for pair in ttls:
            if not isinstance(pair, list) or len(pair) != 2:
                raise StoreDamaged("the earlier settings of a queue make no sense")
            last, ttl = pair
            if not isinstance(last, int) or not isinstance(ttl, int):
                raise StoreDamaged("the earlier settings of a queue make no sense")
            self._lasts.append(int(last))
            self._ttls.append(int(ttl))
