"""HTTP requests that go from one worker to another, and their responses, as bytes.

A line of JSON comes first, then the body as it is.
"""

from __future__ import annotations

import json
from typing import Any

from ferrymq_broker.access.identity import UserIdentity
from ferrymq_broker.connections.authentication import ClientTransport
from ferrymq_broker.server.http_handlers import HttpPart, HttpRequest, HttpResponse


def encode_request(space: str, request: HttpRequest) -> bytes:
    """Return a request for a virtual host, as bytes for `decode_request`."""
    client, who = request.client, request.identity
    fields = {
        "space": space,
        "method": request.method,
        "path": request.path,
        "query": dict(request.query),
        "headers": dict(request.headers),
        "base": request.base,
        "raw_path": request.raw_path,
        "part": int(request.part),
        "client": [client.peer, client.host, client.loopback, client.encrypted],
        "identity": None if who is None else _identity_fields(who),
    }
    return json.dumps(fields).encode() + b"\n" + request.body


def decode_request(data: bytes) -> tuple[str, HttpRequest]:
    """Return the name of the virtual host, and the request."""
    head, _, body = data.partition(b"\n")
    fields: dict[str, Any] = json.loads(head)
    space: str = fields.pop("space")
    client = ClientTransport(*fields.pop("client"))
    told = fields.pop("identity")
    identity = None if told is None else _identity_of(told)
    part = HttpPart(fields.pop("part"))
    return space, HttpRequest(body=body, client=client, identity=identity, part=part, **fields)


def encode_answer(answer: HttpResponse | str) -> bytes:
    """Return a response, or the name of another virtual host, as bytes for `decode_answer`."""
    if isinstance(answer, str):
        return json.dumps({"space": answer}).encode() + b"\n"
    fields = {
        "status": int(answer.status),
        "headers": dict(answer.headers),
        "close": answer.close,
    }
    return json.dumps(fields).encode() + b"\n" + answer.body


def decode_answer(data: bytes) -> HttpResponse | str:
    """Return a response, or the name of another virtual host."""
    head, _, body = data.partition(b"\n")
    fields: dict[str, Any] = json.loads(head)
    if "space" in fields:
        space: str = fields["space"]
        return space
    return HttpResponse(body=body, **fields)


def _identity_fields(who: UserIdentity) -> list[object]:
    return [
        who.user,
        sorted(who.groups),
        {name: sorted(values) for name, values in who.claims.items()},
        who.key,
        who.mechanism,
        who.expires,
        who.proven,
    ]


def _identity_of(fields: list[Any]) -> UserIdentity:
    user, groups, claims, *rest = fields
    named = {name: frozenset(values) for name, values in claims.items()}
    return UserIdentity(user, frozenset(groups), named, *rest)
