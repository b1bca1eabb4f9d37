"""Requests for handlers: which pages may send them, and who sends them.

A browser lets any page send requests to any address, even to a broker on the same machine, and
sends the origin of the page. Such requests are accepted only from listed origins, and from the
broker's own. Other clients send no origin.

A page can also have a name that leads to the address of the broker ("DNS rebinding"): then the
browser sees no other origin. So a request without credentials must name the broker by a number, as
``localhost``, by the hostname of a virtual host, or over TLS, where the certificate has the name.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING

from aiohttp import web

from ferrymq_broker.connections.authentication import ClientTransport
from ferrymq_broker.event_log import log
from ferrymq_broker.http_login import log_in
from ferrymq_broker.server.http_handlers import (
    API,
    CONSOLE,
    HttpRequest,
    MountedHandler,
)
from ferrymq_broker.server.peer_address import host_of, name_of

if TYPE_CHECKING:
    from ferrymq_broker.server.server import BrokerServer


class HandlerRequests:
    """The requests of one listener for the handlers of a server. `loopback` says whether the
    listener is only for this machine; `origins` are those of other pages that may send requests."""

    def __init__(self, server: BrokerServer, loopback: bool, origins: list[str]) -> None:
        self._server = server
        self._loopback = loopback
        self._origins = frozenset(origin.lower() for origin in origins)

    def find(self, request: web.Request) -> MountedHandler | None:
        """Return the handler for a request; None if there is none."""
        server = self._server
        space = server.broker.space_for(_hostname(request))
        return None if space is None else server.http_handlers.find(space.name, request.path)

    def refusal(self, request: web.Request) -> web.Response | None:
        """Return the answer to a request that no handler gets; None for other requests."""
        if self._server.failure is not None:
            return _closing(503, "the store has failed")
        reason = self._server.cluster_reason()
        if reason and not _is_about_the_cluster(request):
            return _closing(503, reason)
        refusal = self.refusal_of_page(request, "request")
        if refusal is None and "Content-Encoding" in request.headers:
            return _closing(415, "the content must not be encoded")
        return refusal

    def refusal_of_page(self, request: web.Request, what: str) -> web.Response | None:
        """Return the answer to a page of an origin that is not listed; None for other clients."""
        origin = request.headers.get("Origin")
        if origin is None or self._lets_in(origin) or _is_own(origin, request):
            return None
        log.warning(f"{what} refused", peer=request.remote, origin=origin[:200])
        return web.Response(status=403, text="pages of this origin are not allowed\n")

    async def answer(
        self, request: web.Request, mounted: MountedHandler, body: bytes
    ) -> web.Response:
        """Give a request to its handler, and return the response when its changes are on disk."""
        transport = self._transport_of(request)
        identity = None
        if mounted.login:
            header = request.headers.get("Authorization")
            authenticator = self._server.admission.authenticator_for(transport)
            identity = await log_in(authenticator, header, transport)
            if identity is not None and header is None and not self._is_known_name(request):
                return _closing(
                    403, "without a login, name the broker by its address, or as localhost"
                )
        try:
            response = await self._server.handler_runs.run(
                mounted.space,
                HttpRequest(
                    request.method,
                    request.path,
                    _first_values(request),
                    {name.lower(): value for name, value in request.headers.items()},
                    body,
                    f"{request.scheme}://{request.host}",
                    transport,
                    request.rel_url.raw_path,
                    identity,
                ),
            )
        except Exception:
            log.exception("internal error", peer=request.remote)
            return _closing(500, "the broker made a mistake")
        answer = web.Response(
            status=response.status, body=response.body or None, headers=response.headers
        )
        if response.close:
            answer.force_close()
        return answer

    # -- inside --------------------------------------------------------------------------

    def _transport_of(self, request: web.Request) -> ClientTransport:
        transport = request.transport
        peer = None if transport is None else transport.get_extra_info("peername")
        return ClientTransport(name_of(peer), host_of(peer), self._loopback, request.secure)

    def _lets_in(self, origin: str) -> bool:
        return "*" in self._origins or origin.lower() in self._origins

    def _is_known_name(self, request: web.Request) -> bool:
        return _is_safe(request) or _hostname(request).lower() in self._server.broker.hosts


def _is_about_the_cluster(request: web.Request) -> bool:
    """Return whether a request only reads what every member may show: the console's files, and the
    replication."""
    if request.method not in ("GET", "HEAD"):
        return False
    return request.path.startswith(CONSOLE) or request.path.startswith(f"{API}/replication")


def _is_own(origin: str, request: web.Request) -> bool:
    """Return whether an origin is that of the request itself, which some clients send, and a page
    from elsewhere cannot have it, or has no credentials."""
    if origin.lower() != f"{request.scheme}://{request.host}".lower():
        return False
    return _is_safe(request) or "Authorization" in request.headers


def _is_safe(request: web.Request) -> bool:
    """Return whether the host of a request cannot be that of another page: over TLS the browser has
    checked the certificate, and the name ``localhost`` and the numbers of addresses cannot be made
    to lead to another machine."""
    name = _hostname(request).lower()
    return request.secure or name == "localhost" or _is_numeric(name)


def _is_numeric(host: str) -> bool:
    try:
        ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def _hostname(request: web.Request) -> str:
    """Return the host of a request, without a port; empty if it names none."""
    host = request.headers.get("Host", "")
    return host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]


def _first_values(request: web.Request) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in request.query.items():
        found.setdefault(name, value)
    return found


def _closing(status: int, text: str) -> web.Response:
    """Return a response after which the connection ends."""
    answer = web.Response(status=status, text=f"{text}\n")
    answer.force_close()
    return answer
