"""The identity of a remembered link: what must be equal for a link to be resumed.

A link that is attached again under a remembered name resumes its unsettled deliveries only if all
of this is equal. If anything differs it is another link with new deliveries and tags, and nothing
of the earlier link is used.
"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from ferrymq_broker.connections.connected_client import LinkKey


@final
class LinkIdentity:
    """The identity of one link at the broker.

    `key` has the virtual host, the user, the container, the name and the direction. `address` is
    that of the broker's terminus with aliases resolved, empty for the anonymous terminus; `durable`
    is the granted durability (AMQP 1.0 §3.5.5), `mode` the delivery mode. `mode` is None in a
    record of an earlier version, which did not store it: that equals every mode.
    """

    __slots__ = ("key", "address", "durable", "mode")

    def __init__(self, key: LinkKey, address: str, durable: i64, mode: str | None) -> None:
        self.key: LinkKey = key
        self.address: str = address
        self.durable: i64 = durable
        self.mode: str | None = mode

    def matches(self, other: LinkIdentity) -> bool:
        """Return whether the other identity is that of the same link."""
        return (
            self.key == other.key
            and self.address == other.address
            and self.durable == other.durable
            and (self.mode is None or other.mode is None or self.mode == other.mode)
        )
