"""Authentication of clients that read metrics, for brokers with access rules.

Names and passwords come by HTTP Basic (RFC 7617), tokens by Bearer (RFC 6750). The broker checks
them like a SASL exchange with PLAIN or OAUTHBEARER, with the same rules for connections without
TLS. A client needs the right to manage `METRICS`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from aiohttp import web

from ferrymq_broker import audit
from ferrymq_broker.access.access import ConnectionAccess
from ferrymq_broker.access.identity import UserIdentity
from ferrymq_broker.broker import Broker
from ferrymq_broker.connections.authentication import Authenticator, ClientTransport
from ferrymq_broker.http_login import log_in
from ferrymq_broker.values.rights import MANAGE

# The address at which the right to read metrics is checked.
METRICS: Final = "$metrics"
_CHALLENGES: Final = {
    "PLAIN": 'Basic realm="ferrymq", charset="UTF-8"',
    "OAUTHBEARER": 'Bearer realm="ferrymq"',
}


class MetricsAuth:
    """Authentication and authorisation of requests for metrics.

    `authenticator_for` returns the authenticator for a client, None until the broker has one. With
    `named` each client has to log in, even if the broker has no rules.
    """

    def __init__(
        self,
        broker: Broker,
        authenticator_for: Callable[[ClientTransport], Authenticator | None],
        *,
        loopback: bool,
        named: bool,
    ) -> None:
        self._broker = broker
        self._authenticator_for = authenticator_for
        self._loopback = loopback
        self._named = named

    async def refusal(self, request: web.Request) -> web.Response | None:
        """Return the answer to a client that may not read metrics; None if it may."""
        broker = self._broker
        if not broker.guarded and not self._named:
            return None
        transport = _transport(request, self._loopback)
        authenticator = self._authenticator_for(transport)
        if authenticator is None:
            return web.Response(text="the broker is starting\n", status=503)
        offered = authenticator.mechanisms(transport)
        header = request.headers.get("Authorization")
        identity = await log_in(authenticator, header, transport)
        if identity is None:
            return _unauthorised(offered)
        if header is None and not self._may_see(identity):
            return _unauthorised(offered)
        if not self._may_see(identity):
            what = f"manage at {METRICS!r} is not allowed to you"
            audit.access_refused(
                transport.peer, identity.user, what, broker.default.name, via="http"
            )
            return web.Response(text=what + "\n", status=403)
        return None

    def _may_see(self, identity: UserIdentity) -> bool:
        broker = self._broker
        rules = broker.default.rules if broker.guarded else None
        return ConnectionAccess(identity, rules).permits(MANAGE, METRICS)


def _transport(request: web.Request, loopback: bool) -> ClientTransport:
    peername = None
    if request.transport is not None:
        peername = request.transport.get_extra_info("peername")
    if isinstance(peername, tuple) and len(peername) >= 2:
        return ClientTransport(
            f"{peername[0]}:{peername[1]}", str(peername[0]), loopback, request.secure
        )
    return ClientTransport("http", "", loopback, request.secure)


def _unauthorised(offered: list[str]) -> web.Response:
    """Return a 401 response that names the offered schemes."""
    response = web.Response(text="credentials are needed\n", status=401)
    for mechanism, challenge in _CHALLENGES.items():
        if mechanism in offered:
            response.headers.add("WWW-Authenticate", challenge)
    if "WWW-Authenticate" not in response.headers:
        # RFC 9110 §15.5.2 requires a challenge.
        response.headers.add("WWW-Authenticate", _CHALLENGES["OAUTHBEARER"])
    return response
