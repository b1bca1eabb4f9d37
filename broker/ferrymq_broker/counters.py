"""What the broker counts about its connections."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64


@final
class Counters:
    """Totals since the broker was made. Nodes keep their own."""

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
        "bytes_received",
        "bytes_sent",
    )

    def __init__(self) -> None:
        self.connections_opened: i64 = 0
        # By the limits of all connections, of those of one address, and of those of one user.
        self.connections_refused_total: i64 = 0
        self.connections_refused_address: i64 = 0
        self.connections_refused_user: i64 = 0
        self.logins_refused: i64 = 0
        # Of these: for failures before, or because too many waited; nobody looked at what was said.
        self.logins_put_off: i64 = 0
        self.links_refused: i64 = 0
        # Of these and of others that ended: because a limit of the connection was reached.
        self.links_over_limit: i64 = 0
        # Settled by their senders in advance, and not taken in by their nodes.
        self.messages_dropped: i64 = 0
        self.bytes_received: i64 = 0
        self.bytes_sent: i64 = 0
