"""The identity of a remembered link: what must be equal for it to be resumed.

A link that is attached again under a name that is remembered resumes what was unsettled only if it
is the same link in all of this. If anything differs it is another link, whose deliveries and tags
begin anew; nothing that is remembered of the earlier one answers for it.
"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from ferrymq_broker.connections.connected_client import LinkKey


@final
class LinkIdentity:
    """The identity of one link at the broker.

    `key` has the virtual host, the user, the container, the name and the direction. `address` is
    that of the broker's terminus with aliases followed, empty for the anonymous terminus; `durable`
    the durability that is granted (AMQP 1.0 §3.5.5), `mode` the delivery mode in force. `mode` is
    None in a record of an earlier version, which does not say: every mode equals that.
    """

    __slots__ = ("key", "address", "durable", "mode")

    def __init__(self, key: LinkKey, address: str, durable: i64, mode: str | None) -> None:
        self.key = key
        self.address = address
        self.durable: i64 = durable
        self.mode = mode

    def matches(self, other: LinkIdentity) -> bool:
        """Return whether a link of the other identity is the same link."""
        return (
            self.key == other.key
            and self.address == other.address
            and self.durable == other.durable
            and (self.mode is None or other.mode is None or self.mode == other.mode)
        )
