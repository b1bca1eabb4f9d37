"""Rights that end at a time: of tokens, of a login by token, and of a client that brings no
token."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from ferrymq_broker import audit
from ferrymq_broker.event_log import log
from ferrymq_broker.timers import Timer
from ferrymq_types.transport import Error

if TYPE_CHECKING:
    from ferrymq_broker.access.identity import UserIdentity
    from ferrymq_broker.connections.connection_port import ConnectionPort
    from ferrymq_broker.connections.link_names import LinkHolder
    from ferrymq_broker.connections.output import ClientOutput
    from ferrymq_broker.connections.parts import SharedParts


@final
class _Patience(Timer):
    """The timer for the time that a client without rights has to bring a token."""

    __slots__ = ("token_expiry",)

    def __init__(self, token_expiry: TokenExpiry) -> None:
        super().__init__()
        self.token_expiry = token_expiry

    def on_time(self, now: i64) -> None:
        """Note that the time is over."""
        self.token_expiry.on_patience_over()


@final
class TokenExpiry(Timer):
    """The times at which rights of one connection end.

    When a token expires, the links that only this token has allowed are detached. When a login by
    token expires, its rights end; the connection goes on if its user has brought another token
    meanwhile. A client without any right has the time `Broker.token_deadline`.

    Tokens end at dates of the wall clock, even when that is set. The deadline is a duration.
    """

    __slots__ = (
        "login_ends",
        "_connection",
        "_holder",
        "_client",
        "_output",
        "_shared",
        "_deadline",
        "_patience",
    )

    def __init__(
        self,
        connection: ConnectionPort,
        holder: LinkHolder,
        output: ClientOutput,
        shared: SharedParts,
        deadline: i64,
    ) -> None:
        super().__init__()
        client = holder.client
        identity = client.identity
        # Milliseconds since the epoch, 0 for never.
        self.login_ends: i64 = 0 if identity is None else _milliseconds(identity.expires)
        self._connection = connection
        self._holder = holder
        self._client = client
        self._output = output
        self._shared = shared
        self._deadline: i64 = deadline
        self._patience = _Patience(self)

    def on_grant(self) -> None:
        """Check the rights of links again: a new token may give less than the earlier one."""
        self._holder.reauthorize()
        self.arm()

    def renew_login(self) -> None:
        """Take note that the client has logged in again, with rights of its own; check those of its
        links."""
        client = self._client
        identity = client.identity
        self.login_ends = 0 if identity is None else _milliseconds(identity.expires)
        client.access.on_grant = self.on_grant
        self.on_grant()

    def arm(self) -> None:
        """Set the timers to the next time."""
        shared = self._shared
        access = self._client.access
        patience = self._patience
        if access.gives_anything() or self._deadline == 0:
            shared.timers.cancel(patience)
        elif patience.due == 0:
            shared.timers.set(patience, shared.agenda.now + self._deadline)
        due = self.login_ends
        next_expiry = _milliseconds(access.grants.next_expiry())
        if next_expiry != 0 and (due == 0 or next_expiry < due):
            due = next_expiry
        dates = shared.agenda.dates
        if due == 0:
            dates.cancel(self)
        else:
            dates.set(self, due)

    def cancel(self) -> None:
        """Stop the timers: the connection is over."""
        self._client.access.on_grant = None
        shared = self._shared
        shared.agenda.dates.cancel(self)
        shared.timers.cancel(self._patience)

    def on_patience_over(self) -> None:
        """Close the connection if no token that gives a right has come in time."""
        access = self._client.access
        if not self._connection.is_finished() and not access.gives_anything():
            self._close("the client has brought no token that gives a right")

    def on_time(self, now: i64) -> None:
        """End the rights that a token or the login has given until this date."""
        if self._connection.is_finished():
            return
        client = self._client
        access = client.access
        over = access.expire_grants(float(now) / 1000.0)
        for grant in over:
            subject = subject_of(grant.identity)
            scope = grant.meaning or grant.scope
            audit.token_lapsed(client.peer, client.user, scope, subject)
        ended = self.login_ends != 0 and self.login_ends <= now
        if ended:
            self.login_ends = 0
            user = client.user
            audit.token_lapsed(client.peer, user, "", subject_of(access.identity))
            access.end_login()
            if user is None or access.open or not access.grants.has_user(user):
                self._close("the token has expired")
                return
        if ended or over:
            self._holder.reauthorize()
            self._output.touch()
        self.arm()

    def _close(self, reason: str) -> None:
        log.info("connection closed for its rights", peer=self._client.peer, reason=reason)
        error = Error(condition="amqp:unauthorized-access", description=reason)
        self._connection.close_soon(error)


def subject_of(identity: UserIdentity) -> str:
    """Return the subject of an identity's token, as access rules name it."""
    return f"key:{identity.key}" if identity.key else f"user:{identity.user}"


def _milliseconds(seconds: float) -> i64:
    """Return the first millisecond at or after a time in seconds since the epoch; 0 for none."""
    return 0 if seconds == 0.0 else i64(seconds * 1000.0) + 1
