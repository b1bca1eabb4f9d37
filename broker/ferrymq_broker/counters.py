"""What the broker counts about its connections."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64


@final
class Counters:
    """Totals since the broker was made. Nodes keep their own."""

    __slots__ = (
        "connections_opened",
        "logins_refused",
        "links_refused",
        "messages_dropped",
        "bytes_received",
        "bytes_sent",
    )

    def __init__(self) -> None:
        self.connections_opened: i64 = 0
        self.logins_refused: i64 = 0
        self.links_refused: i64 = 0
        # Settled by their senders in advance, and not taken in by their nodes.
        self.messages_dropped: i64 = 0
        self.bytes_received: i64 = 0
        self.bytes_sent: i64 = 0
