"""The timers of a connection (AMQP 1.0 §2.4.5). All times are in seconds of the caller's clock.

Keep-alives do not read the clock at each sending: at every half of the peer's half time-out the
timer checks whether anything was sent since its last check, and only otherwise requests an empty
frame. So we are never silent for longer than half of the time that the peer allows.
"""

from __future__ import annotations

from typing import final


@final
class ConnectionTimers:
    """Deadlines of one connection; None means the timer is off."""

    __slots__ = (
        "last_received",
        "idle_time_out",
        "keepalive_interval",
        "keepalive_due",
        "sent_since",
        "sent_after",
        "handshake_due",
        "close_due",
    )

    def __init__(self, now: float, idle_time_out: float | None, handshake: float | None) -> None:
        self.last_received: float = now
        self.idle_time_out: float | None = idle_time_out
        self.keepalive_interval: float | None = None
        self.keepalive_due: float = 0.0
        self.sent_since: bool = False
        # A time before the last output, by no more than a keep-alive interval.
        self.sent_after: float = now
        self.handshake_due: float | None = None if handshake is None else now + handshake
        self.close_due: float | None = None

    def peer_time_out(self, seconds: float, now: float) -> None:
        """Set the time-out of the peer: it closes when it receives nothing for `seconds`."""
        self.keepalive_interval = seconds / 4
        self.keepalive_due = now + seconds / 4
        # The time of earlier output is unknown.
        self.sent_since = False

    def next_deadline(self) -> float | None:
        """Return the time of the next deadline."""
        due = self.handshake_due
        idle = self.idle_time_out
        if idle is not None:
            silent = self.last_received + idle
            due = silent if due is None or silent < due else due
        if self.keepalive_interval is not None:
            due = self.keepalive_due if due is None or self.keepalive_due < due else due
        close = self.close_due
        if close is not None:
            due = close if due is None or close < due else due
        return due

    def peer_silent(self, now: float) -> bool:
        """Return whether the peer has been silent for the whole idle time-out."""
        idle = self.idle_time_out
        return idle is not None and now >= self.last_received + idle

    def handshake_late(self, now: float) -> bool:
        """Return whether the time for exchanging the opens is over."""
        due = self.handshake_due
        return due is not None and now >= due

    def close_late(self, now: float) -> bool:
        """Return whether the time for the peer's answer to our close is over."""
        due = self.close_due
        return due is not None and now >= due

    def overslept(self, now: float) -> bool:
        """Return whether we were inactive for so long that the peer must have ended the connection.

        The peer announced half of the time that it really allows (§2.4.5).
        """
        interval = self.keepalive_interval
        if interval is None:
            return False
        if self.sent_since:
            return now - self.sent_after >= 9 * interval
        return now - (self.keepalive_due - interval) >= 8 * interval

    def keepalive(self, now: float) -> bool:
        """Return whether an empty frame must be sent; this call starts the next interval."""
        interval = self.keepalive_interval
        if interval is None or now < self.keepalive_due:
            return False
        self.keepalive_due = now + interval
        sent = self.sent_since
        self.sent_since = False
        return not sent
