"""The node itself: it reads requests, calls their handlers, and writes the responses.

A request is a message whose subject is a verb and whose `to` is a path; the subject of the response
is a status of HTTP, and its body a map, a list, or a text that says why the request was refused.
The links, the way of a response and its room are the business of `ServiceNode`.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs

from ferrymq_broker import audit
from ferrymq_broker.access.access import ConnectionAccess
from ferrymq_broker.errors import BrokerError
from ferrymq_broker.event_log import log
from ferrymq_broker.management import ADDRESS
from ferrymq_broker.management.errors import ManagementError, status_of
from ferrymq_broker.management.sliced_query import finish
from ferrymq_broker.nodes.link_terms import Party
from ferrymq_broker.nodes.request import Request, Response
from ferrymq_broker.nodes.service import ServiceNode
from ferrymq_broker.security.cbs import ACCEPTED, PUT_TOKEN
from ferrymq_broker.security.cbs import ADDRESS as TOKENS
from ferrymq_broker.values.rights import MANAGE
from ferrymq_rabbitmq.address_v2 import MANAGEMENT, decoded
from ferrymq_rabbitmq.arguments import ArgumentError
from ferrymq_rabbitmq.definitions.document import parse_definitions
from ferrymq_rabbitmq.definitions.running_broker import import_definitions_into
from ferrymq_rabbitmq.management.host_requests import HostRequests
from ferrymq_rabbitmq.management.request_refused import RequestRefused, bad_request

if TYPE_CHECKING:
    from ferrymq_broker.addresses.address_space import AddressSpace
    from ferrymq_broker.broker import Broker

Answer = tuple[HTTPStatus, object]

_VERSION: Final = {"http:response": "1.1"}
_CHANGES: Final = ("PUT", "POST", "DELETE")


class ManagementNode:
    """The handler of the requests of one virtual host."""

    def __init__(self, space: AddressSpace, broker: Broker, requests: HostRequests) -> None:
        self._space = space
        self._broker = broker
        self._queues = requests.queues
        self._exchanges = requests.exchanges
        self._bindings = requests.bindings

    def answer(self, request: Request) -> Response:
        """Return the response to a request."""
        party = request.party
        verb = request.properties.subject or ""
        path = request.properties.to or ""
        try:
            status, body = self._do(party, verb, path, request.body)
        except Exception as error:
            status, body = _failure(error, party, path)
        self._record(party, verb, path, status, "" if status < 300 else str(body))
        return _response(status, body)

    def _do(self, party: Party, verb: str, path: str, body: object) -> Answer:
        place, _, query = path.partition("?")
        steps = [decoded(step, path) for step in place.split("/")[1:]]
        match (verb, *steps):
            case ("PUT", "queues", name):
                return self._queues.declare(party, name, _map(body))
            case ("GET", "queues", name):
                return HTTPStatus.OK, self._queues.describe(party, name)
            case ("DELETE", "queues", name):
                return HTTPStatus.OK, self._queues.delete(party, name)
            case ("DELETE", "queues", name, "messages"):
                return HTTPStatus.OK, self._queues.purge(party, name)
            case ("PUT", "exchanges", name):
                self._exchanges.declare(party, name, _map(body))
            case ("DELETE", "exchanges", name):
                self._exchanges.delete(party, name)
            case ("POST", "bindings"):
                self._bindings.bind(party, _map(body))
            case ("GET", "bindings"):
                asked = parse_qs(query, keep_blank_values=True)
                return HTTPStatus.OK, self._bindings.list(
                    party, {key: values[0] for key, values in asked.items()}
                )
            case ("PUT", "auth", "tokens"):
                self._renew(party, body)
            case ("POST", "definitions"):
                return HTTPStatus.OK, self._import(party, body)
            case ("DELETE", "bindings", _):
                self._bindings.unbind(party, place.removeprefix("/bindings/"))
            case _:
                raise RequestRefused(
                    HTTPStatus.NOT_FOUND, f"there is no {verb[:20]} of {path[:200]!r}"
                )
        return HTTPStatus.NO_CONTENT, None

    def _renew(self, party: Party, body: object) -> None:
        """Take a new token for the connection, as ``$cbs`` does, for all addresses."""
        service = self._space.nodes.get(TOKENS)
        if not isinstance(service, ServiceNode):
            raise bad_request("the broker takes no tokens: [[security.jwt]] names no issuer")
        if not isinstance(body, str | bytes):
            raise bad_request("the body must be the token")
        asked = Request(party)
        asked.application_properties = {"operation": PUT_TOKEN, "type": "jwt", "name": ""}
        asked.body, asked.size = body, len(body)
        response = service.answer(asked)
        if response is None:
            raise RequestRefused(
                HTTPStatus.SERVICE_UNAVAILABLE, "the keys of the issuer are being fetched"
            )
        told = response.application_properties
        status = told["status-code"]
        assert isinstance(status, int)
        if status != ACCEPTED:
            raise RequestRefused(HTTPStatus(int(status)), str(told["status-description"]))

    def _import(self, party: Party, body: object) -> object:
        """Import the definitions in a body: JSON, as text or bytes. It needs the right to manage
        the broker."""
        if not party.access.permits(MANAGE, ADDRESS):
            raise RequestRefused(HTTPStatus.FORBIDDEN, "to manage the broker is not allowed to you")
        if not isinstance(body, str | bytes):
            raise bad_request("the body must be a text: the definitions as JSON")
        try:
            definitions = parse_definitions(body)
            return finish(
                import_definitions_into(
                    self._broker, definitions, lambda space: self._party_in(space, party)
                )
            )
        except ValueError as error:
            raise bad_request(str(error)) from None

    def _party_in(self, space: AddressSpace, party: Party) -> Party:
        """Return a party with the rights that it has in another virtual host by its login."""
        return party if space is self._space else party_in(space, self._broker, party)

    def _record(self, party: Party, verb: str, path: str, status: int, reason: str) -> None:
        """Write changes and refused requests to the audit log."""
        host = self._space.name
        if status == HTTPStatus.FORBIDDEN:
            audit.access_refused(party.peer, party.user, reason, host, via="management")
        elif verb in _CHANGES:
            audit.changed(party.peer, party.user, host, verb, "node", path, int(status), reason)


def add_management(space: AddressSpace, broker: Broker, requests: HostRequests) -> None:
    """Add the node to a virtual host; every client may attach to it, because each request is
    checked."""
    node = ServiceNode(
        MANAGEMENT, space, ManagementNode(space, broker, requests).answer, _too_large
    )
    space.open_services.add(MANAGEMENT)
    space.insert_service(node)


def party_in(space: AddressSpace, broker: Broker, party: Party) -> Party:
    """Return a party with the rights that its login gives it in another virtual host."""
    identity = party.access.identity
    rules = space.rules_for(identity) if broker.guarded else None
    access = ConnectionAccess(identity, rules)
    return Party(
        party.connection, party.session, party.container_id, party.user, party.peer, access
    )


def _map(body: object) -> Mapping[str, object]:
    if not isinstance(body, dict):
        raise bad_request("the body must be a map")
    return {str(key): value for key, value in body.items()}


def _failure(error: Exception, party: Party, path: str) -> Answer:
    if isinstance(error, RequestRefused):
        return error.status, error.description
    if isinstance(error, ArgumentError):
        return HTTPStatus.CONFLICT, str(error)
    if isinstance(error, ManagementError):
        return _known(error.status), error.description
    if isinstance(error, BrokerError):
        return _known(status_of(error.condition)), error.description
    log.error("management failed", peer=party.peer, path=path[:200], exc_info=error)
    return (
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "the request failed in the broker; its log has the details",
    )


def _known(status: int) -> HTTPStatus:
    return HTTPStatus(status)


def _too_large(reason: str) -> Response:
    return _response(HTTPStatus.INTERNAL_SERVER_ERROR, reason)


def _response(status: HTTPStatus, body: object) -> Response:
    return Response(dict(_VERSION), body, str(int(status)))
