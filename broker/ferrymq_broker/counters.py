"""Counters of the broker's connections."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64


@final
class Counters:
    """Totals since the broker was made. Nodes have counters of their own."""

    __slots__ = (
        "connections_opened",
        "connections_refused_total",
        "connections_refused_address",
        "connections_refused_user",
        "logins_refused",
        "logins_put_off",
        "links_refused",
        "links_over_limit",
        "messages_dropped",
        "throttles",
        "bytes_received",
        "bytes_sent",
    )

    def __init__(self) -> None:
        self.connections_opened: i64 = 0
        # Refused by the limits for all connections, for one address, and for one user.
        self.connections_refused_total: i64 = 0
        self.connections_refused_address: i64 = 0
        self.connections_refused_user: i64 = 0
        self.logins_refused: i64 = 0
        # Logins refused without checking credentials, because there were too many failures or too
        # many logins were waiting. `logins_refused` includes them.
        self.logins_put_off: i64 = 0
        self.links_refused: i64 = 0
        # Links refused or ended because of a limit of their connection.
        self.links_over_limit: i64 = 0
        # Messages that were sent settled and that their nodes did not accept.
        self.messages_dropped: i64 = 0
        # How often a client has had to wait because of a rate limit.
        self.throttles: i64 = 0
        self.bytes_received: i64 = 0
        self.bytes_sent: i64 = 0
