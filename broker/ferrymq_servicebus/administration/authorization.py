"""What a client of the administration may do, by the token in its request."""

from __future__ import annotations

from typing import Final, Protocol

from ferrymq_broker import audit
from ferrymq_broker.access.access import ConnectionAccess
from ferrymq_broker.access.identity import UserIdentity
from ferrymq_broker.security.shared_access import covers, is_signature
from ferrymq_broker.security.token_refusal import TokenRefusedError
from ferrymq_broker.server.http_handlers import HttpHost, HttpRequest
from ferrymq_servicebus.administration.errors import HttpError

# Fields with tokens for the entities to which messages or dead letters are forwarded.
_OF_TARGETS: Final = (
    "servicebussupplementaryauthorization",
    "servicebusdlqsupplementaryauthorization",
)
# The detail for every refused token, which does not tell why.
_REFUSED: Final = "the token in the field Authorization is missing, wrong or has expired"


def _path_of(scope: str, request: HttpRequest) -> str:
    """Return the path of a scope; some clients sign the host and the port without a scheme."""
    host = request.base.partition("://")[2].casefold()
    if scope.casefold() == host:
        return ""
    return scope[len(host) + 1 :] if scope.casefold().startswith(f"{host}/") else scope


class RequestAuthorizer(Protocol):
    """Decides what the client of a request may do."""

    def access(self, request: HttpRequest, address: str) -> ConnectionAccess:
        """Return the rights of the client of a request about the node at an address; ``""`` is the
        whole namespace. Raises `HttpError` (401)."""
        ...


class TokenAuthorizer:
    """Decides by shared access signatures. Clients without one have the rights of clients that give
    no name over AMQP, if such clients may connect."""

    def __init__(self, host: HttpHost) -> None:
        self._host = host

    def access(self, request: HttpRequest, address: str) -> ConnectionAccess:
        """Return the rights of the client of a request."""
        host = self._host
        tokens = host.tokens
        token = request.headers.get("authorization", "")
        if (tokens is None or not token) and not host.needs_login(request.client):
            # A token that nobody could check is ignored: emulators of the vendor do the same.
            rules = host.space.rules if host.broker.guarded else None
            return ConnectionAccess(UserIdentity(None), rules)
        path = request.path.strip("/")
        if tokens is None or not is_signature(token):
            raise self._refusal(request, path, "there is no shared access signature")
        try:
            signed = tokens.check_signature(token)
        except TokenRefusedError as error:
            raise self._refusal(request, path, str(error)) from None
        scope = _path_of(signed.scope, request)
        if not covers(scope.casefold(), path.casefold()):
            raise self._refusal(request, path, "the token is for something else")
        access = signed.at(address if scope else "")
        for field in _OF_TARGETS:
            more = request.headers.get(field, "")
            if not is_signature(more):
                continue
            try:
                target = tokens.check_signature(more)
            except TokenRefusedError as error:
                raise self._refusal(request, path, str(error)) from None
            target.add_to(access, _path_of(target.scope, request))
        return access

    def _refusal(self, request: HttpRequest, path: str, reason: str) -> HttpError:
        audit.token_refused(request.client.peer, None, path[:200], reason)
        return HttpError(401, _REFUSED)
