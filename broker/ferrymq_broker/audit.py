"""The audit log: logins, refusals, and changes, with the users who caused them.

Each entry is an event with its facts, through the logger ``ferrymq.audit``; `server.logs` writes
the entries to a file if the configuration names one. Facts contain no secrets and no parts of
messages.

All changes and logins are recorded. A client can cause refusals as often as it likes, so their rate
is limited for each connection and for each address that connections come from. Refusals that are
left out are counted in the next entry, as ``left_out``, or in ``refusals-left-out`` when the
connection ends.
"""

from __future__ import annotations

import logging
from typing import Any, Final

import structlog

from ferrymq_broker.event_log import SHARED_PROCESSORS
from ferrymq_broker.log_rate_limit import LogRateLimiter, host_of

LOGGER: Final = "ferrymq.audit"

_log: Final[Any] = structlog.wrap_logger(
    logging.getLogger(LOGGER),
    processors=[
        structlog.stdlib.filter_by_level,
        *SHARED_PROCESSORS,
        structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
    ],
    wrapper_class=structlog.stdlib.BoundLogger,
    cache_logger_on_first_use=True,
)


class _Refusals:
    """Rate limits of refusals: for each connection, and for all connections from one address."""

    def __init__(self) -> None:
        self.peers = LogRateLimiter(burst=50, rate=1.0)
        self.hosts = LogRateLimiter(burst=5000, rate=50.0)

    def left_out(self, peer: str) -> int | None:
        """Return how many refusals were left out before this one; None if this one is left out."""
        of_peer = self.peers.let(peer)
        if of_peer is None:
            return None
        return self.hosts.let(host_of(peer), of_peer)


_refusals: Final = _Refusals()


def record(event: str, **facts: object) -> None:
    """Write an entry. A fact that is None is left out."""
    _log.info(event, **_known(facts))


def record_refusal(event: str, peer: str, **facts: object) -> None:
    """Write that something was refused to the client `peer`, or only count it if there are many."""
    left_out = _refusals.left_out(peer)
    if left_out is None:
        return
    if left_out:
        facts["left_out"] = left_out
    _log.warning(event, peer=peer, **_known(facts))


def end_of(peer: str) -> None:
    """Write how many refusals of a connection that has ended were left out."""
    left_out = _refusals.peers.end(peer)
    if left_out:
        _log.warning("refusals-left-out", peer=peer, count=left_out)


# -- the entries --------------------------------------------------------------------------------


def logged_in(peer: str, user: str | None, mechanism: str, encrypted: bool) -> None:
    """Record a login."""
    record("login", peer=peer, user=user, mechanism=mechanism, encrypted=encrypted)


def login_refused(
    peer: str, user: str | None, mechanism: str, encrypted: bool, reason: str
) -> None:
    """Record a login that was refused."""
    record_refusal(
        "login-refused",
        peer,
        user=user,
        mechanism=mechanism,
        encrypted=encrypted,
        reason=reason or "refused",
    )


def connection_refused(peer: str, reason: str) -> None:
    """Record a connection that was closed at once because it was above a limit."""
    record_refusal("connection-refused", peer, reason=reason)


def host_refused(peer: str, user: str | None, hostname: str | None, reason: str) -> None:
    """Record that a user may not use the virtual host that the client asked for."""
    record_refusal("host-refused", peer, user=user, hostname=hostname, reason=reason)


def access_refused(
    peer: str, user: str | None, what: str, virtual_host: str, via: str = "link"
) -> None:
    """Record that a user lacks a right; `what` names the right and the address."""
    record_refusal("access-refused", peer, user=user, host=virtual_host, via=via, what=what)


def token_accepted(peer: str, user: str | None, scope: str, subject: str, expires: float) -> None:
    """Record a token that gives its bearer rights at `scope`."""
    record("token", peer=peer, user=user, scope=scope, subject=subject, expires=expires or None)


def token_refused(peer: str, user: str | None, scope: str, reason: str) -> None:
    """Record a token that was refused."""
    record_refusal("token-refused", peer, user=user, scope=scope, reason=reason)


def token_lapsed(peer: str, user: str | None, scope: str, subject: str) -> None:
    """Record a token that has expired and was not replaced."""
    record("token-lapsed", peer=peer, user=user, scope=scope, subject=subject)


def changed(
    peer: str,
    user: str | None,
    virtual_host: str,
    operation: str,
    type: str,
    name: str,
    status: int,
    description: str,
) -> None:
    """Record a change by management, or an attempt at one."""
    record(
        "management",
        peer=peer,
        user=user,
        host=virtual_host,
        operation=operation,
        type=type,
        name=name,
        status=status,
        outcome=description,
    )


def reloaded(what: str, error: str | None = None) -> None:
    """Record that a file (certificates, users, keys) was read again, or the `error` in it."""
    record("reload", what=what, error=error)


def stopping(reason: str) -> None:
    """Record that the broker is shutting down."""
    record("shutdown", reason=reason)


def _known(facts: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in facts.items() if value is not None}
