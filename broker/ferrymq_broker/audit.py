"""What is on record: who logged in, what was refused to whom, who changed what.

Each entry is an event with its facts, through the logger ``ferrymq.audit``; `server.logs` writes
them to a file where the configuration names one. Facts have no secrets, and nothing of messages.

Changes and logins are all recorded. Refusals are what somebody can cause as often as he likes: of
each connection, and of each address that connections come from, only so many are; those that are
left out are counted in the next one, as ``left_out``, or in ``refusals-left-out`` when the
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
    """Refusals of each connection, and of all that come from one address."""

    def __init__(self) -> None:
        self.peers = LogRateLimiter(burst=50, rate=1.0)
        self.hosts = LogRateLimiter(burst=5000, rate=50.0)

    def left_out(self, peer: str) -> int | None:
        """How many were left out before this one, or None if this one is to be."""
        of_peer = self.peers.let(peer)
        if of_peer is None:
            return None
        return self.hosts.let(host_of(peer), of_peer)


_refusals: Final = _Refusals()


def record(event: str, **facts: object) -> None:
    """Something is on record. A fact that is None is left out."""
    _log.info(event, **_known(facts))


def record_refusal(event: str, peer: str, **facts: object) -> None:
    """Something was refused to the client `peer`; one in a flood of them is only counted."""
    left_out = _refusals.left_out(peer)
    if left_out is None:
        return
    if left_out:
        facts["left_out"] = left_out
    _log.warning(event, peer=peer, **_known(facts))


def end_of(peer: str) -> None:
    """The connection is gone: what it was refused, and was left out, is told of now."""
    left_out = _refusals.peers.end(peer)
    if left_out:
        _log.warning("refusals-left-out", peer=peer, count=left_out)


# -- what there is to record --------------------------------------------------------------------


def logged_in(peer: str, user: str | None, mechanism: str, encrypted: bool) -> None:
    """Somebody was let in."""
    record("login", peer=peer, user=user, mechanism=mechanism, encrypted=encrypted)


def login_refused(
    peer: str, user: str | None, mechanism: str, encrypted: bool, reason: str
) -> None:
    """Somebody was not let in."""
    record_refusal(
        "login-refused",
        peer,
        user=user,
        mechanism=mechanism,
        encrypted=encrypted,
        reason=reason or "refused",
    )


def connection_refused(peer: str, reason: str) -> None:
    """A connection was over before it began: there were too many, or it came to a wrong place."""
    record_refusal("connection-refused", peer, reason=reason)


def host_refused(peer: str, user: str | None, hostname: str | None, reason: str) -> None:
    """Somebody may not use the virtual host that he asked for."""
    record_refusal("host-refused", peer, user=user, hostname=hostname, reason=reason)


def access_refused(
    peer: str, user: str | None, what: str, virtual_host: str, via: str = "link"
) -> None:
    """Somebody may not do `what`, which names the right and the address."""
    record_refusal("access-refused", peer, user=user, host=virtual_host, via=via, what=what)


def token_accepted(peer: str, user: str | None, scope: str, subject: str, expires: float) -> None:
    """A token came that gives its bearer something at `scope`."""
    record("token", peer=peer, user=user, scope=scope, subject=subject, expires=expires or None)


def token_refused(peer: str, user: str | None, scope: str, reason: str) -> None:
    """A token came that is not good."""
    record_refusal("token-refused", peer, user=user, scope=scope, reason=reason)


def token_lapsed(peer: str, user: str | None, scope: str, subject: str) -> None:
    """The time of a token is over, and no other took its place."""
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
    """Somebody has changed something by management, or tried to."""
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
    """A file was read again: certificates, users, keys; or was not, for an `error` in it."""
    record("reload", what=what, error=error)


def stopping(reason: str) -> None:
    """The broker is shutting down."""
    record("shutdown", reason=reason)


def _known(facts: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in facts.items() if value is not None}
