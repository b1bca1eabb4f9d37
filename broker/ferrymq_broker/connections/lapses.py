"""Rights that end with time: of tokens, of a login that was one, of who brings no token at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker import audit
from ferrymq_broker.connections.review import review_links
from ferrymq_broker.journal import log
from ferrymq_broker.timers import Timed
from ferrymq_types.transport import Error

if TYPE_CHECKING:
    from ferrymq_broker.access.identity import Identity
    from ferrymq_broker.connections.handler import ConnectionHandler


# Milliseconds between two looks at the clock.
_LOOK_EVERY: Final = 60_000


@final
class Lapses(Timed):
    """What one connection may do no more from some time on.

    When a token lapses, the links that only it has allowed are dropped. When the login itself was
    by a token and that expires, what it gave is gone; the connection goes on if its user has
    brought another one meanwhile. Who may do nothing at all is given `Broker.token_deadline`.
    """

    __slots__ = ("handler", "login_ends", "idle_until", "reason")

    def __init__(self, handler: ConnectionHandler) -> None:
        super().__init__()
        self.handler = handler
        identity = handler.identity
        # Milliseconds since the epoch, 0 for never.
        self.login_ends: i64 = 0 if identity is None else _milliseconds(identity.expires)
        self.idle_until: i64 = 0
        # Why the connection is about to be closed.
        self.reason = ""

    def on_grant(self) -> None:
        """A token has come. It may give less than the one before."""
        review_links(self.handler)
        self.arm()

    def arm(self) -> None:
        """See to it that the next end is not missed."""
        handler = self.handler
        broker = handler.broker
        access = handler.access
        if access.gives_anything() or broker.token_deadline == 0:
            self.idle_until = 0
        elif self.idle_until == 0:
            self.idle_until = broker.agenda.now + broker.token_deadline
        due = self.login_ends
        for other in (_milliseconds(access.grants.next_expiry()), self.idle_until):
            if other != 0 and (due == 0 or other < due):
                due = other
        if due == 0:
            broker.timers.cancel(self)
        else:
            # The clock of the day may be set meanwhile.
            broker.timers.set(self, min(due, broker.agenda.now + _LOOK_EVERY))

    def cancel(self) -> None:
        """The connection is over."""
        self.handler.access.on_grant = None
        self.handler.broker.timers.cancel(self)

    def on_time(self, now: i64) -> None:
        """Something has come to its end."""
        handler = self.handler
        if handler.connection.finished:
            return
        access = handler.access
        over = access.expire_grants(float(now) / 1000.0)
        for grant in over:
            subject = subject_of(grant.identity)
            audit.token_lapsed(handler.peer, handler.user, grant.scope, subject)
        ended = self.login_ends != 0 and self.login_ends <= now
        if ended:
            self.login_ends = 0
            user = handler.user
            audit.token_lapsed(handler.peer, user, "", subject_of(access.identity))
            access.end_login()
            if user is None or access.open or not access.grants.has_user(user):
                self._close("the token has expired")
                return
        if self.idle_until != 0 and self.idle_until <= now and not access.gives_anything():
            self._close("no token has come that allows anything")
            return
        if ended or over:
            review_links(handler)
            handler.touch()
        self.arm()

    def _close(self, reason: str) -> None:
        log.info("connection closed for its rights", peer=self.handler.peer, reason=reason)
        self.reason = reason
        self.handler.broker.soon(self._end)

    def _end(self) -> None:
        """A pass of its own."""
        handler = self.handler
        error = Error(condition="amqp:unauthorized-access", description=self.reason)
        handler.close(error, float(handler.broker.agenda.now) / 1000.0 - handler.broker.epoch)
        if handler.rearm is not None:
            handler.rearm()


def watch(handler: ConnectionHandler) -> None:
    """The connection is open: see to it that it may do nothing for too long."""
    identity = handler.identity
    if handler.broker.takes_tokens or (identity is not None and identity.expires != 0.0):
        lapses = Lapses(handler)
        handler.lapses = lapses
        handler.access.on_grant = lapses.on_grant
        lapses.arm()


def subject_of(identity: Identity) -> str:
    """Whom a token speaks for, as rules name him."""
    return f"key:{identity.key}" if identity.key else f"user:{identity.user}"


def _milliseconds(seconds: float) -> i64:
    """The first millisecond that is not before a time of the day; 0 for none."""
    return 0 if seconds == 0.0 else i64(seconds * 1000.0) + 1
