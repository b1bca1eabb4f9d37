"""The management node: parses requests, calls the operations, and writes responses.

Requests and responses are those of the AMQP Management draft (OASIS, Version 1.0): the operation
and the entity in application-properties, attributes and arguments in the body, a status and its
description in the application-properties of the response.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Final

from ferrymq_broker import audit
from ferrymq_broker.errors import BrokerError
from ferrymq_broker.event_log import log
from ferrymq_broker.management.dialect import ManagementDialect
from ferrymq_broker.management.discovery import Discovery
from ferrymq_broker.management.entity import EntityType
from ferrymq_broker.management.errors import (
    BAD_REQUEST,
    FAILED,
    FORBIDDEN,
    NO_ROOM,
    NOT_IMPLEMENTED,
    TOO_MANY,
    ManagementError,
    status_of,
)
from ferrymq_broker.management.operation import Call, Operation, Result
from ferrymq_broker.management.sliced_query import (
    WAITING,
    SlicedJob,
    SliceQueue,
    Steps,
    finish,
    is_traffic,
    looks,
)
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.nodes.request import Request, Response
from ferrymq_broker.nodes.service import PENDING_BYTES
from ferrymq_codec.scalars import Int, Symbol

if TYPE_CHECKING:
    from ferrymq_broker.broker import Broker
    from ferrymq_broker.nodes.service import ServiceNode

MANAGEMENT_TYPE: Final = "org.amqp.management"
# Application-properties that are not arguments.
_STANDARD: Final = frozenset(
    {"operation", "type", "name", "identity", "locales", "security-tokens", "securityTokens"}
)


class Manager:
    """The request handler of the management node of the virtual host `host`. `types` are the types
    that it manages, by full name, with those of the `dialects`."""

    def __init__(
        self,
        types: list[EntityType],
        host: str = "",
        dialects: Sequence[ManagementDialect] = (),
    ) -> None:
        self.host = host
        self._dialects = tuple(dialects)
        self.types: dict[str, EntityType] = {type.name: type for type in types}
        listed = {name: type for name, type in self.types.items() if type.listed}
        self._short = {type.short: type for type in listed.values()}
        self._node = Discovery(listed, self.find).operations()
        self._jobs: SliceQueue | None = None
        self.service: ServiceNode | None = None

    def take_time(self, broker: Broker, service: ServiceNode) -> None:
        """Handle long requests in slices from now on; `service` sends the responses."""
        self._jobs = SliceQueue(broker, self._go_on)
        self.service = service

    def answer(self, request: Request) -> Response | None:
        """Return the response to a request; None if the response will be sent later."""
        jobs = self._jobs
        try:
            result = self._do(request)
            if isinstance(result, Generator):
                if jobs is None:
                    result = finish(result)
                elif jobs.waiting(int(request.party.connection)) >= WAITING:
                    raise ManagementError(
                        TOO_MANY, "too many requests of this connection wait for an answer"
                    )
                else:
                    # The queue answers it, now or later.
                    jobs.add(SlicedJob(request, result))
                    return None
        except Exception as error:
            result = _failure(request, error)
        return self._response(request, result)

    def carry_out(self, request: Request, via: str) -> Steps[Result]:
        """Carry out a request that did not come as a message, in steps, and return its result.

        `via` says in the audit log how it came. Nobody else answers the request.
        """
        try:
            done = self._do(request)
            result = (yield from done) if isinstance(done, Generator) else done
        except Exception as error:
            result = _failure(request, error)
        self._record(request, result, via)
        return result

    def _go_on(self, job: SlicedJob, until: float) -> bool:
        """Work on a request until a time. Return whether it has been answered."""
        request = job.request
        way = request.way
        service = self.service
        result: Result | None
        if isinstance(way, Queue) and way.bytes >= PENDING_BYTES and looks(request):
            result = Result(
                None, NO_ROOM, "too many responses wait for this client; it must receive some first"
            )
        else:
            try:
                if not job.go_on(until):
                    return False
                result = job.result
            except Exception as error:
                result = _failure(request, error)
        if service is not None and result is not None:
            service.respond(request, self._response(request, result))
        return True

    def _response(self, request: Request, result: Result) -> Response:
        self._record(request, result, "management")
        if result.status == FORBIDDEN:
            result.properties["errorCondition"] = Symbol("amqp:unauthorized-access")
        response = _response(result)
        if self._dialects:
            asked = str(request.application_properties.get("type"))
            for dialect in self._dialects:
                if asked.startswith(dialect.prefix):
                    response.application_properties.update(dialect.status_names(result))
        return response

    def _record(self, request: Request, result: Result, via: str) -> None:
        """Write changes and refused requests to the audit log, but not invalid requests."""
        party = request.party
        if result.status == FORBIDDEN:
            audit.access_refused(party.peer, party.user, result.description, self.host, via=via)
            return
        properties = request.application_properties
        operation = properties.get("operation")
        if result.status >= BAD_REQUEST and result.status != FAILED:
            return
        if not isinstance(operation, str) or looks(request) or is_traffic(request):
            return
        name = properties.get("name", properties.get("identity"))
        audit.changed(
            party.peer,
            party.user,
            self.host,
            operation,
            str(properties.get("type", "")),
            _name_in(result.body) if name is None else str(name),
            int(result.status),
            result.description,
        )

    def find(self, name: str) -> EntityType:
        """Return the type of that name, in full or short. Raises `ManagementError`."""
        found = self.types.get(name) or self._short.get(name)
        if found is None:
            known = ", ".join(sorted(self._short))
            raise ManagementError(
                BAD_REQUEST, f"unknown entity type {name[:200]!r}; the types are {known}"
            )
        return found

    def _do(self, request: Request) -> Result | Steps[Result]:
        properties = request.application_properties
        name = _string(properties, "operation")
        if not name:
            raise ManagementError(BAD_REQUEST, "the request has no operation")
        type_name = _string(properties, "type")
        operation, type = self._operation(name, type_name)
        entity = _string(properties, "name") or _string(properties, "identity")
        call = Call(request.party, entity, _arguments(request))
        if type is not None:
            type.authorise(name, call)
        return operation.handler(call)

    def _operation(self, name: str, type_name: str) -> tuple[Operation, EntityType | None]:
        """Return the operation and its type. The type is None for operations of the management node
        itself, which every client may use."""
        type: EntityType | None = None
        if type_name == MANAGEMENT_TYPE or (not type_name and name in self._node):
            operation = self._node.get(name)
            type_name = MANAGEMENT_TYPE
        elif not type_name:
            if not any(name in type.operations() for type in self.types.values()):
                raise ManagementError(NOT_IMPLEMENTED, f"unknown operation {name[:200]!r}")
            raise ManagementError(
                BAD_REQUEST, f"{name} needs the type of an entity in the property type"
            )
        else:
            type = self.find(type_name)
            operation = type.operations().get(name)
            type_name = type.name
        if operation is None:
            raise ManagementError(
                NOT_IMPLEMENTED, f"entities of type {type_name} have no operation {name[:200]!r}"
            )
        return operation, type


def failed(reason: str) -> Response:
    """Make the response to a request whose own response cannot be sent."""
    return _response(Result(None, FAILED, reason))


def _failure(request: Request, error: Exception) -> Result:
    """Return the result for a request that raised an error."""
    if isinstance(error, ManagementError):
        return Result(None, error.status, error.description)
    if isinstance(error, BrokerError):
        condition: dict[str, object] = {"errorCondition": Symbol(error.condition)}
        return Result(None, status_of(error.condition), error.description, condition)
    log.error(
        "management failed",
        peer=request.party.peer,
        operation=request.application_properties.get("operation"),
        exc_info=error,
    )
    return Result(None, FAILED, "the operation failed in the broker; its log has the details")


def _name_in(body: object) -> str:
    """Return the name of the entity in the body of a response; empty if there is none."""
    name = body.get("name") if isinstance(body, dict) else None
    return name if isinstance(name, str) else ""


def _string(properties: dict[str, object], key: str) -> str:
    """Return a property that is a string; empty if it is missing. Raises `ManagementError`."""
    value = properties.get(key)
    if value is None:
        return ""
    if isinstance(value, int) and not isinstance(value, bool):
        # Names of connections are numbers.
        return str(int(value))
    if not isinstance(value, str):
        raise ManagementError(BAD_REQUEST, f"the property {key!r} must be a string")
    return str(value)


def _arguments(request: Request) -> dict[str, object]:
    arguments: dict[str, object] = {}
    for key, value in request.application_properties.items():
        if key not in _STANDARD:
            arguments[key] = value
    body = request.body
    # Some clients send an empty JSON list.
    if body is None or body == b"[]" or (isinstance(body, list | bytes | str) and not body):
        return arguments
    if not isinstance(body, dict) or not all(isinstance(key, str) for key in body):
        raise ManagementError(BAD_REQUEST, "the body must be a map with string keys")
    for key, value in body.items():
        arguments[str(key)] = value
    return arguments


def _response(result: Result) -> Response:
    properties: dict[str, object] = {
        "statusCode": Int(result.status),
        "statusDescription": result.description,
    }
    properties.update(result.properties)
    return Response(properties, {} if result.body is None else result.body)
