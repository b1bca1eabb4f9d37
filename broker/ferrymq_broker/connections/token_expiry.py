"""Rights that end with time: of tokens, of a login that was one, of who brings no token at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from ferrymq_broker import audit
from ferrymq_broker.connections.reauthorize import reauthorize_links
from ferrymq_broker.event_log import log
from ferrymq_broker.timers import Timer
from ferrymq_types.transport import Error

if TYPE_CHECKING:
    from ferrymq_broker.access.identity import UserIdentity
    from ferrymq_broker.connections.handler import ConnectionHandler


@final
class _Patience(Timer):
    """How long a connection may do nothing before it has to bring a token."""

    __slots__ = ("token_expiry",)

    def __init__(self, token_expiry: TokenExpiry) -> None:
        super().__init__()
        self.token_expiry = token_expiry

    def on_time(self, now: i64) -> None:
        """The time is over."""
        self.token_expiry.on_patience_over()


@final
class TokenExpiry(Timer):
    """What one connection may do no more from some time on.

    When a token lapses, the links that only it has allowed are dropped. When the login itself was
    by a token and that expires, what it gave is gone; the connection goes on if its user has
    brought another one meanwhile. Who may do nothing at all is given `Broker.token_deadline`.

    The ends of tokens are dates and go by the wall clock, even when that is set. The deadline is a
    duration.
    """

    __slots__ = ("handler", "login_ends", "reason", "_patience")

    def __init__(self, handler: ConnectionHandler) -> None:
        super().__init__()
        self.handler = handler
        identity = handler.client.identity
        # Milliseconds since the epoch, 0 for never.
        self.login_ends: i64 = 0 if identity is None else _milliseconds(identity.expires)
        self._patience = _Patience(self)
        # Why the connection is about to be closed.
        self.reason = ""

    def on_grant(self) -> None:
        """A token has come. It may give less than the one before."""
        reauthorize_links(self.handler)
        self.arm()

    def arm(self) -> None:
        """See to it that the next end is not missed."""
        handler = self.handler
        broker = handler.broker
        access = handler.client.access
        patience = self._patience
        if access.gives_anything() or broker.token_deadline == 0:
            broker.timers.cancel(patience)
        elif patience.due == 0:
            broker.timers.set(patience, broker.agenda.now + broker.token_deadline)
        due = self.login_ends
        next_expiry = _milliseconds(access.grants.next_expiry())
        if next_expiry != 0 and (due == 0 or next_expiry < due):
            due = next_expiry
        dates = broker.agenda.dates
        if due == 0:
            dates.cancel(self)
        else:
            dates.set(self, due)

    def cancel(self) -> None:
        """The connection is over."""
        self.handler.client.access.on_grant = None
        broker = self.handler.broker
        broker.agenda.dates.cancel(self)
        broker.timers.cancel(self._patience)

    def on_patience_over(self) -> None:
        """No token has come in time that allows anything."""
        handler = self.handler
        if not handler.connection.finished and not handler.client.access.gives_anything():
            self._close("no token has come that allows anything")

    def on_time(self, now: i64) -> None:
        """Something has come to its end on this date."""
        handler = self.handler
        if handler.connection.finished:
            return
        access = handler.client.access
        over = access.expire_grants(float(now) / 1000.0)
        for grant in over:
            subject = subject_of(grant.identity)
            scope = grant.meaning or grant.scope
            audit.token_lapsed(handler.client.peer, handler.client.user, scope, subject)
        ended = self.login_ends != 0 and self.login_ends <= now
        if ended:
            self.login_ends = 0
            user = handler.client.user
            audit.token_lapsed(handler.client.peer, user, "", subject_of(access.identity))
            access.end_login()
            if user is None or access.open or not access.grants.has_user(user):
                self._close("the token has expired")
                return
        if ended or over:
            reauthorize_links(handler)
            handler.touch()
        self.arm()

    def _close(self, reason: str) -> None:
        log.info("connection closed for its rights", peer=self.handler.client.peer, reason=reason)
        self.reason = reason
        self.handler.broker.soon(self._end)

    def _end(self) -> None:
        """A pass of its own."""
        handler = self.handler
        error = Error(condition="amqp:unauthorized-access", description=self.reason)
        handler.close(error, handler.broker.now)
        if handler.rearm is not None:
            handler.rearm()


def watch(handler: ConnectionHandler) -> None:
    """The connection is open: see to it that it may do nothing for too long."""
    identity = handler.client.identity
    if handler.broker.takes_tokens or (identity is not None and identity.expires != 0.0):
        token_expiry = TokenExpiry(handler)
        handler.token_expiry = token_expiry
        handler.client.access.on_grant = token_expiry.on_grant
        token_expiry.arm()


def subject_of(identity: UserIdentity) -> str:
    """Whom a token speaks for, as rules name him."""
    return f"key:{identity.key}" if identity.key else f"user:{identity.user}"


def _milliseconds(seconds: float) -> i64:
    """The first millisecond that is not before a time of the day; 0 for none."""
    return 0 if seconds == 0.0 else i64(seconds * 1000.0) + 1
