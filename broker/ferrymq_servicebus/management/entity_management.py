"""The node `<entity>/$management`: it reads requests, calls the operations, and writes responses.

Links, the way of a response and its room are the business of `ServiceNode`, as at `$management`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import uuid4

from ferrymq_broker import audit
from ferrymq_broker.event_log import log
from ferrymq_broker.nodes.request import Request, Response
from ferrymq_broker.nodes.service import ServiceNode
from ferrymq_codec.scalars import Int, Symbol
from ferrymq_servicebus.conditions import VENDOR
from ferrymq_servicebus.management.asked import Asked, Handler
from ferrymq_servicebus.management.entity import Entity
from ferrymq_servicebus.management.failures import (
    FAILED,
    NOT_IMPLEMENTED,
    UNAUTHORIZED,
    RequestFailed,
    failure_of,
    invalid,
)
from ferrymq_servicebus.management.message_operations import EntityMessages
from ferrymq_servicebus.management.rule_operations import EntityRules
from ferrymq_servicebus.management.scheduling import EntitySchedule
from ferrymq_servicebus.management.sessions import EntitySessions
from ferrymq_servicebus.management.settlement import EntityLocks

if TYPE_CHECKING:
    from ferrymq_broker.addresses.address_space import AddressSpace
    from ferrymq_broker.broker import Broker

_OK: Final = 200
_NO_CONTENT: Final = 204
_INTERNAL: Final = "amqp:internal-error"
# The operations that change an entity; others are a part of the traffic of messages.
_AUDITED: Final = ("add-rule", "remove-rule", "cancel-scheduled-message")


class EntityManagement:
    """The request handler of an entity's management."""

    def __init__(self, space: AddressSpace, native: str) -> None:
        self._space = space
        self._native = native
        entity = Entity(space, native)
        self._operations: dict[str, Handler] = {
            **EntityMessages(entity).operations(),
            **EntityLocks(entity).operations(),
            **EntitySchedule(entity).operations(),
            **EntitySessions(entity).operations(),
        }
        if entity.is_part:
            self._operations.update(EntityRules(entity).operations())

    def answer(self, request: Request) -> Response:
        """Return the response to a request."""
        try:
            body = self._do(request)
        except Exception as error:
            failure = failure_of(error)
            if failure is None:
                tracking = uuid4().hex
                log.error(
                    "management failed",
                    tracking=tracking,
                    peer=request.party.peer,
                    operation=request.application_properties.get("operation"),
                    exc_info=error,
                )
                failure = RequestFailed(
                    FAILED,
                    _INTERNAL,
                    "the operation failed in the broker; its log has the details "
                    f"TrackingId:{tracking}",
                )
            self._record(request, failure.status, failure.description)
            return _response({}, failure.status, failure.description, failure.condition)
        self._record(request, _OK, "OK")
        if body is None:
            return _response({}, _NO_CONTENT, "No Content")
        return _response(body, _OK, "OK")

    def _do(self, request: Request) -> dict[str, object] | None:
        name = request.application_properties.get("operation")
        if not isinstance(name, str):
            raise invalid("the request has no operation")
        handler = self._operations.get(name.removeprefix(VENDOR))
        if handler is None:
            raise RequestFailed(
                NOT_IMPLEMENTED, "amqp:not-implemented", f"there is no operation {name[:200]!r}"
            )
        body = request.body
        if not isinstance(body, dict):
            raise invalid("the body must be a map")
        arguments = {str(key): value for key, value in body.items()}
        return handler(Asked(request, self._native, arguments))

    def _record(self, request: Request, status: int, description: str) -> None:
        """Write changes and refused requests to the audit log."""
        party = request.party
        host = self._space.name
        if status == UNAUTHORIZED:
            audit.access_refused(party.peer, party.user, description, host, via="management")
            return
        name = str(request.application_properties.get("operation")).removeprefix(VENDOR)
        if status == _OK and name in _AUDITED:
            audit.changed(
                party.peer, party.user, host, name, "entity", self._native, status, description
            )


def entity_service(
    space: AddressSpace, address: str, native: str, broker: Broker | None = None
) -> ServiceNode:
    """Return the node at `address` that serves requests about the entity with the address
    `native`. The entity need not exist yet."""
    return ServiceNode(address, space, EntityManagement(space, native).answer, failed)


def failed(reason: str) -> Response:
    """Make the response to a request whose own response cannot be sent."""
    return _response({}, FAILED, reason, _INTERNAL)


def _response(body: object, status: int, description: str, condition: str = "") -> Response:
    """Return a response. Clients look for either spelling of the status."""
    properties: dict[str, object] = {
        "statusCode": Int(status),
        "statusDescription": description,
        "status-code": Int(status),
        "status-description": description,
    }
    if condition:
        properties["errorCondition"] = Symbol(condition)
        properties["error-condition"] = Symbol(condition)
    return Response(properties, body)
