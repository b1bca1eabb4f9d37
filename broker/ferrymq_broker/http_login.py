"""The login of a client of HTTP, by a name and a password (RFC 7617) or by a token (RFC 6750).

The broker checks them like a SASL exchange with PLAIN or OAUTHBEARER, with the same rules for
connections without TLS.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from typing import Final

from ferrymq.engine.events import AuthenticationRequested
from ferrymq_broker import audit
from ferrymq_broker.access.identity import UserIdentity
from ferrymq_broker.connections.authentication import Authenticator, ClientTransport, ask

# The seconds that a decision may take.
_PATIENCE: Final = 30.0
# The most characters of credentials; longer ones are refused.
_LONGEST: Final = 8192
# The SASL mechanism for each HTTP authentication scheme.
_MECHANISMS: Final = {"basic": "PLAIN", "bearer": "OAUTHBEARER"}


async def log_in(
    authenticator: Authenticator, header: str | None, transport: ClientTransport
) -> UserIdentity | None:
    """Return the identity of a client by the field Authorization of its request; None if the login
    is refused, or is missing where one is needed. The audit log has the refusals."""
    if header is None:
        return None if authenticator.is_required(transport) else UserIdentity(None)
    event = _read(header)
    if event is None or event.mechanism not in authenticator.mechanisms(transport):
        why = "malformed credentials" if event is None else "not taken here, in the clear"
        user = None if event is None else event.username
        mechanism = "HTTP" if event is None else event.mechanism
        audit.login_refused(transport.peer, user, mechanism, transport.encrypted, why)
        return None
    identity, why = await _decide(authenticator, event, transport)
    if identity is None:
        audit.login_refused(
            transport.peer, event.username, event.mechanism, transport.encrypted, why
        )
    return identity


def _read(header: str) -> AuthenticationRequested | None:
    """Parse an Authorization field; None if it is malformed or of an unknown scheme."""
    scheme, _, credentials = header.partition(" ")
    credentials = credentials.strip()
    mechanism = _MECHANISMS.get(scheme.lower())
    if mechanism is None or not credentials or len(credentials) > _LONGEST:
        return None
    if mechanism == "OAUTHBEARER":
        return AuthenticationRequested(mechanism, None, None, None, credentials)
    try:
        decoded = base64.b64decode(credentials, validate=True).decode("utf-8")
    except (binascii.Error, ValueError):
        return None
    name, colon, password = decoded.partition(":")
    if not colon or not name or "\0" in decoded:
        return None
    return AuthenticationRequested(mechanism, name, password, None)


async def _decide(
    authenticator: Authenticator, event: AuthenticationRequested, transport: ClientTransport
) -> tuple[UserIdentity | None, str]:
    decision: asyncio.Future[tuple[UserIdentity | None, str]]
    decision = asyncio.get_running_loop().create_future()

    def on_decision(identity: UserIdentity | None, reason: str) -> None:
        if not decision.done():
            decision.set_result((identity, reason))

    ask(authenticator, event, transport, on_decision)
    try:
        async with asyncio.timeout(_PATIENCE):
            return await decision
    except TimeoutError:
        return None, "no decision in time"
