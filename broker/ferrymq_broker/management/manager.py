"""The management node: reads requests, finds who can do what they ask, writes the answers.

Requests and responses are those of the AMQP Management draft (OASIS, Version 1.0): the operation
and the entity in application-properties, attributes and arguments in the body, a status and its
description in the application-properties of the response.
"""

from __future__ import annotations

from typing import Final

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.journal import log
from ferrymq_broker.management import authorisation
from ferrymq_broker.management.discovery import Discovery
from ferrymq_broker.management.entity import EntityType
from ferrymq_broker.management.errors import (
    BAD_REQUEST,
    FAILED,
    FORBIDDEN,
    NOT_IMPLEMENTED,
    ManagementError,
    status_of,
)
from ferrymq_broker.management.operation import Call, Operation, Result
from ferrymq_broker.nodes.request import Request, Response
from ferrymq_codec.scalars import Int

MANAGEMENT_TYPE: Final = "org.amqp.management"
# Application-properties that are not arguments.
_STANDARD: Final = frozenset(
    {"operation", "type", "name", "identity", "locales", "security-tokens", "securityTokens"}
)


class Manager:
    """Answers the requests to one management node. `types` are what it manages, by full name."""

    def __init__(self, types: list[EntityType]) -> None:
        self.types = {type.name: type for type in types}
        self._short = {type.short: type for type in types}
        self._node = Discovery(self.types, self.find).operations()

    def answer(self, request: Request) -> Response:
        """Do what the request asks, or say why not."""
        try:
            result = self._do(request)
        except ManagementError as error:
            return _response(Result(None, error.status, error.description))
        except BrokerError as error:
            return _response(Result(None, status_of(error.condition), error.description))
        except Exception:
            log.exception(
                "management failed",
                peer=request.party.peer,
                operation=request.application_properties.get("operation"),
            )
            return _response(Result(None, FAILED, "the broker failed at this; its log says how"))
        return _response(result)

    def find(self, name: str) -> EntityType:
        """The type of that name, in full or short. Raises `ManagementError`."""
        found = self.types.get(name) or self._short.get(name)
        if found is None:
            known = ", ".join(sorted(self._short))
            raise ManagementError(
                BAD_REQUEST, f"unknown entity type {name[:200]!r}; there are {known}"
            )
        return found

    def _do(self, request: Request) -> Result:
        properties = request.application_properties
        name = _string(properties, "operation")
        if not name:
            raise ManagementError(BAD_REQUEST, "the request has no operation")
        type_name = _string(properties, "type")
        operation, type_name = self._operation(name, type_name)
        if not authorisation.authorise(request.party, name, type_name):
            raise ManagementError(FORBIDDEN, f"{name} of {type_name} is not allowed to you")
        entity = _string(properties, "name") or _string(properties, "identity")
        return operation.handler(Call(request.party, entity, _arguments(request)))

    def _operation(self, name: str, type_name: str) -> tuple[Operation, str]:
        """What does it, and the full name of the type."""
        if type_name == MANAGEMENT_TYPE or (not type_name and name in self._node):
            operation = self._node.get(name)
            type_name = MANAGEMENT_TYPE
        elif not type_name:
            if not any(name in type.operations() for type in self.types.values()):
                raise ManagementError(NOT_IMPLEMENTED, f"unknown operation {name[:200]!r}")
            raise ManagementError(BAD_REQUEST, f"{name} needs the type of the entity")
        else:
            type = self.find(type_name)
            operation = type.operations().get(name)
            type_name = type.name
        if operation is None:
            raise ManagementError(NOT_IMPLEMENTED, f"{type_name} knows no operation {name[:200]!r}")
        return operation, type_name


def _string(properties: dict[str, object], key: str) -> str:
    """A property that is a string, empty if it is missing. Raises `ManagementError`."""
    value = properties.get(key)
    if value is None:
        return ""
    if isinstance(value, int) and not isinstance(value, bool):
        # Connections have numbers for names.
        return str(int(value))
    if not isinstance(value, str):
        raise ManagementError(BAD_REQUEST, f"the property {key!r} is not a string")
    return str(value)


def _arguments(request: Request) -> dict[str, object]:
    arguments: dict[str, object] = {}
    for key, value in request.application_properties.items():
        if key not in _STANDARD:
            arguments[key] = value
    body = request.body
    if body is None or (isinstance(body, list | bytes | str) and not body):
        return arguments
    if not isinstance(body, dict) or not all(isinstance(key, str) for key in body):
        raise ManagementError(BAD_REQUEST, "the body is not a map with strings for keys")
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
