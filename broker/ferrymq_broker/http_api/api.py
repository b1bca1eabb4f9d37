"""The requests of the API: their paths, and the management requests that they stand for.

Nothing is decided here: each request becomes one that the `Manager` of a virtual host carries out,
with the rights of the client. Long answers are made in steps.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Generator, Mapping
from http import HTTPStatus
from typing import Final
from urllib.parse import quote, unquote

from ferrymq_broker.access.access import ConnectionAccess
from ferrymq_broker.access.identity import UserIdentity
from ferrymq_broker.addresses.address_space import AddressSpace
from ferrymq_broker.http_api.message_sections import sections_of
from ferrymq_broker.http_api.openapi import openapi_document
from ferrymq_broker.json_values import plain
from ferrymq_broker.management import ADDRESS
from ferrymq_broker.management.errors import NO_CONTENT, ManagementError
from ferrymq_broker.management.manager import Manager
from ferrymq_broker.management.operation import Result
from ferrymq_broker.nodes.link_terms import Party
from ferrymq_broker.nodes.request import Request
from ferrymq_broker.server.http_handlers import (
    HttpHandler,
    HttpHost,
    HttpRequest,
    HttpResponse,
    HttpSteps,
    ServedElsewhereError,
)
from ferrymq_broker.values.rights import MANAGE

JSON: Final = "application/json"
PROBLEM: Final = "application/problem+json"
# The query parameter with the name of a virtual host.
HOST: Final = "virtual-host"
# Entities that are listed if the request does not say how many.
PAGE: Final = 100
# Entities that are encoded in one step.
_STEP: Final = 25
# The segments of a path before the type: "", "management", "v1".
_BEFORE: Final = 3

_WITH_BODY: Final = ("PUT", "POST", "PATCH")

Body = Mapping[str, object]


def make_handler(host: HttpHost) -> HttpHandler:
    """Return the handler of the API, for requests to a virtual host and those that name another."""
    return _ManagementApi(host).handle


class _RefusedError(Exception):
    """A request that no manager gets."""

    def __init__(self, status: HTTPStatus, detail: str, headers: Mapping[str, str] = {}) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = headers


class _ManagementApi:
    """The API. It has no state, apart from the document that describes it, once it is made."""

    def __init__(self, host: HttpHost) -> None:
        self._host = host
        self._document = b""

    def handle(self, request: HttpRequest) -> HttpResponse | HttpSteps:
        """Return the response to a request, or the steps to it."""
        try:
            return self._handle(request)
        except _RefusedError as error:
            return _problem(error.status, error.detail, error.headers)

    def _handle(self, request: HttpRequest) -> HttpResponse | HttpSteps:
        steps = [unquote(step) for step in request.raw_path.split("/")[_BEFORE:]]
        while steps and not steps[-1]:
            steps.pop()
        reads = request.method in ("GET", "HEAD")
        if steps == ["openapi.json"] and reads:
            return self._describe()
        identity = request.identity
        if identity is None:
            challenges = {"WWW-Authenticate": 'Basic realm="ferrymq", charset="UTF-8"'}
            raise _RefusedError(HTTPStatus.UNAUTHORIZED, "a login is needed", challenges)
        space = self._space(request.query.get(HOST, ""))
        party = self._party(request, identity, space)
        manager = self._manager(space)
        if not steps:
            _expect(reads, "GET")
            return _ok(_types(manager))
        if steps == ["whoami"]:
            _expect(reads, "GET")
            return _ok(self._whoami(party, identity, space))
        asked = _translate(request, steps)
        return _carry_out(manager, party, asked)

    def _describe(self) -> HttpSteps:
        if not self._document:
            document = yield from openapi_document(self._manager(self._host.space))
            self._document = _encode(document)
        return HttpResponse(HTTPStatus.OK, self._document, {"Content-Type": JSON})

    # -- clients -------------------------------------------------------------------------

    def _space(self, name: str) -> AddressSpace:
        if not name:
            return self._host.space
        space = self._host.broker.spaces.get(name)
        if space is None:
            raise _RefusedError(HTTPStatus.NOT_FOUND, f"there is no virtual host {name[:200]!r}")
        if space.elsewhere >= 0:
            raise ServedElsewhereError(space)
        return space

    def _manager(self, space: AddressSpace) -> Manager:
        return self._host.managers[space.name]

    def _access(self, identity: UserIdentity, space: AddressSpace) -> ConnectionAccess:
        guarded = self._host.broker.guarded
        return ConnectionAccess(identity, space.rules_for(identity) if guarded else None)

    def _party(self, request: HttpRequest, identity: UserIdentity, space: AddressSpace) -> Party:
        access = self._access(identity, space)
        return Party(0, 0, "", identity.user, request.client.peer, access)

    def _whoami(self, party: Party, identity: UserIdentity, space: AddressSpace) -> Body:
        """Return who the client is, and the virtual hosts in which it has rights."""
        hosts = [
            each.name
            for each in self._host.broker.spaces.values()
            if _has_rights(self._access(identity, each))
        ]
        return {
            "user": party.user,
            "virtual-host": space.name,
            "virtual-hosts": sorted(hosts),
            "manages": party.access.permits(MANAGE, ADDRESS),
        }


class _Asked:
    """A management request. `lists` says that the answer is a table of entities, `made` that it is
    an entity that may be new, and `shows` that it has messages."""

    def __init__(self, operation: str, type: str, name: str, arguments: Body) -> None:
        self.operation = operation
        self.type = type
        self.name = name
        self.arguments = arguments
        self.lists = operation == "QUERY"

    def for_party(self, party: Party) -> Request:
        """Return the request as a manager reads it."""
        request = Request(party)
        properties: dict[str, object] = {"operation": self.operation}
        if not self.lists:
            properties["type"] = self.type
        if self.name:
            properties["name"] = self.name
        request.application_properties = properties
        request.body = dict(self.arguments)
        return request


def _translate(request: HttpRequest, steps: list[str]) -> _Asked:
    """Return the management request that a request stands for. Raises `_RefusedError`."""
    method = request.method
    arguments: dict[str, object] = {
        name: value for name, value in request.query.items() if name != HOST
    }
    if method in _WITH_BODY:
        arguments = {**arguments, **_body(request)}
    match steps:
        case [type]:
            _expect(method in ("GET", "HEAD", "POST"), "GET, POST")
            if method == "POST":
                name = arguments.pop("name", "")
                return _Asked("CREATE", type, name if isinstance(name, str) else "", arguments)
            return _Asked("QUERY", type, "", _query_of(type, arguments))
        case [type, name]:
            operation = {
                "GET": "READ",
                "HEAD": "READ",
                "PUT": "CREATE",
                "PATCH": "UPDATE",
                "DELETE": "DELETE",
            }.get(method, "")
            _expect(bool(operation), "GET, PUT, PATCH, DELETE")
            return _Asked(operation, type, name, arguments)
        case [type, name, operation]:
            _expect(method == "POST", "POST")
            return _Asked(operation.upper(), type, name, arguments)
    raise _RefusedError(HTTPStatus.NOT_FOUND, "a path has a type, a name, and an operation")


def _query_of(type: str, arguments: dict[str, object]) -> Body:
    """Return the arguments of a QUERY."""
    names = arguments.pop("attributes", "")
    query: dict[str, object] = {"count": PAGE, **arguments, "entityType": type}
    if isinstance(names, str) and names:
        query["attributeNames"] = ["name", "identity", "type", *names.split(",")]
    return query


def _body(request: HttpRequest) -> dict[str, object]:
    """Return the JSON object in the body of a request. A page from elsewhere cannot send this media
    type without asking first, which the API does not answer."""
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != JSON:
        raise _RefusedError(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"the field Content-Type must be {JSON}"
        )
    if not request.body.strip():
        return {}
    try:
        value = json.loads(request.body)
    except (ValueError, RecursionError):
        raise _RefusedError(HTTPStatus.BAD_REQUEST, "the body is not JSON") from None
    if not isinstance(value, dict):
        raise _RefusedError(HTTPStatus.BAD_REQUEST, "the body must be an object")
    return {key: _from_json(item) for key, item in value.items()}


def _from_json(value: object) -> object:
    """Return a value with binary in place of ``{"base64": "..."}``."""
    if isinstance(value, list):
        return [_from_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    text = value.get("base64")
    if len(value) == 1 and isinstance(text, str):
        try:
            return base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise _RefusedError(HTTPStatus.BAD_REQUEST, "base64: it is malformed") from None
    return {key: _from_json(item) for key, item in value.items()}


def _carry_out(manager: Manager, party: Party, asked: _Asked) -> HttpSteps:
    """Carry out a request by the manager of its virtual host, and return the response."""
    try:
        manager.find(asked.type)
    except ManagementError as error:
        return _problem(HTTPStatus.NOT_FOUND, error.description)
    work = manager.carry_out(asked.for_party(party), "http")
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: Result = end.value
            break
        yield
    if result.status >= HTTPStatus.BAD_REQUEST:
        return _problem(result.status, result.description)
    headers = {"Status-Description": quote(result.description, " ;:,.'()=/+-_")}
    if result.status == HTTPStatus.CREATED and isinstance(result.body, dict):
        identity = result.body.get("identity")
        if isinstance(identity, str):
            headers["Location"] = f"/management/v1/{quote(asked.type)}/{quote(identity, '')}"
    if result.status == NO_CONTENT:
        return HttpResponse(NO_CONTENT, headers=headers)
    if asked.lists:
        body = yield from _encode_table(result)
    elif isinstance(result.body, dict) and _has_messages(result.body):
        body = yield from _encode_messages(result.body)
    else:
        body = _encode(result.body)
    headers["Content-Type"] = JSON
    return HttpResponse(result.status, body, headers)


def _encode_table(result: Result) -> Generator[None, None, bytes]:
    """Encode the answer to a QUERY: entities, and how many there are in all."""
    table = result.body
    assert isinstance(table, dict)
    names = table["attributeNames"]
    pieces: list[bytes] = []
    for at, row in enumerate(table["results"], 1):
        pieces.append(_encode(dict(zip(names, row, strict=True))))
        if at % _STEP == 0:
            yield
    total = _encode(result.properties.get("total"))
    return b'{"total": ' + total + b', "items": [' + b",\n".join(pieces) + b"]}\n"


def _has_messages(body: dict[str, object]) -> bool:
    messages = body.get("messages")
    return isinstance(messages, list) and all(isinstance(each, dict) for each in messages)


def _encode_messages(body: dict[str, object]) -> Generator[None, None, bytes]:
    """Encode messages with their sections in place of their bytes."""
    messages = body["messages"]
    assert isinstance(messages, list)
    pieces: list[bytes] = []
    for message in messages:
        payload = message.get("message")
        if isinstance(payload, bytes):
            message = {**message, "message": sections_of(payload), "size": len(payload)}
        pieces.append(_encode(message))
        yield
    rest = {key: value for key, value in body.items() if key != "messages"}
    others = _encode(rest)[1:-1]
    return (
        b'{"messages": [' + b",\n".join(pieces) + b"]" + (b", " + others if others else b"") + b"}"
    )


def _encode(value: object) -> bytes:
    return json.dumps(plain(value), ensure_ascii=False).encode("utf-8", "surrogatepass")


def _types(manager: Manager) -> Body:
    """Return the types with their attributes, and their operations with the arguments."""
    return {
        "types": {
            type.short: {
                "attributes": list(type.attributes),
                "operations": {
                    name: list(operation.arguments) for name, operation in type.operations().items()
                },
            }
            for type in manager.types.values()
            if type.listed
        }
    }


def _has_rights(access: ConnectionAccess) -> bool:
    return access.open or access.gives_anything()


def _expect(right: bool, allowed: str) -> None:
    if not right:
        raise _RefusedError(
            HTTPStatus.METHOD_NOT_ALLOWED, f"the methods are {allowed}", {"Allow": allowed}
        )


def _ok(body: object) -> HttpResponse:
    return HttpResponse(HTTPStatus.OK, _encode(body), {"Content-Type": JSON})


def _problem(status: int, detail: str, headers: Mapping[str, str] = {}) -> HttpResponse:
    """Return an error as a problem of RFC 9457."""
    body = {"status": int(status), "title": HTTPStatus(status).phrase, "detail": detail}
    return HttpResponse(status, _encode(body), {**headers, "Content-Type": PROBLEM})
