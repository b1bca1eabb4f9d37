"""Requests to RabbitMQ's management and its responses, without I/O.

A request is a message whose `subject` is a verb of HTTP and whose `to` is a path; the subject of
the response is a status of HTTP, and its body a map, or a text that says why the request was
refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

from ferrymq.message import Message
from ferrymq.rabbitmq.addresses import encode_name
from ferrymq.rabbitmq.errors import refusal

ADDRESS: Final = "/management"
"""The address of the management node."""


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """Description of a queue or stream by RabbitMQ."""

    name: str
    type: str
    """``classic``, ``quorum`` or ``stream``."""
    durable: bool
    exclusive: bool
    auto_delete: bool
    arguments: dict[str, object]
    message_count: int
    """Messages that are ready to be delivered."""
    consumer_count: int
    vhost: str
    leader: str | None = None
    """The node with the leader, of RabbitMQ's cluster."""
    replicas: list[str] = field(default_factory=list)
    """The nodes with replicas."""


@dataclass(frozen=True, slots=True)
class Binding:
    """A binding of an exchange to a queue, or to another exchange: the other one is None."""

    source: str
    queue: str | None
    exchange: str | None
    key: str
    arguments: dict[str, object]
    location: str
    """The path of the binding, by which it is deleted."""


def queue_path(name: str) -> str:
    """Return the path of a queue. Raises ValueError if the name is empty."""
    return f"/queues/{encode_name(name, 'queue')}"


def exchange_path(name: str) -> str:
    """Return the path of an exchange. Raises ValueError if the name is empty."""
    return f"/exchanges/{encode_name(name, 'exchange')}"


def destination(queue: str | None, exchange: str | None) -> tuple[str, str]:
    """Return what a binding leads to: ``"queue"`` or ``"exchange"``, and its name. Raises TypeError
    unless one of them is given."""
    if queue is not None and exchange is None:
        return "queue", queue
    if exchange is not None and queue is None:
        return "exchange", exchange
    raise TypeError("a binding leads to a queue or to an exchange: give queue= or exchange=")


def bindings_path(source: str, kind: str, name: str, key: str) -> str:
    """Return the path at which the bindings of an exchange to one destination are listed."""
    return (
        f"/bindings?src={encode_name(source, 'exchange')}&dst{kind[0]}={encode_name(name, kind)}"
        f"&key={quote(key, safe='')}"
    )


def encode_request(verb: str, path: str, body: object) -> Message:
    """Return the message of a request."""
    return Message(dict(body) if isinstance(body, Mapping) else body, to=path, subject=verb)


def read_response(message: Message) -> Any:
    """Return the body of a response. Raises `RabbitMQError` if the request was refused."""
    subject = message.subject
    status = int(subject) if subject is not None and subject.isdigit() else 0
    body = message.body
    if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        return body
    if not status:
        raise refusal(
            HTTPStatus.INTERNAL_SERVER_ERROR, f"the response has no status: subject {subject!r}"
        )
    raise refusal(status, body if isinstance(body, str) else f"status {status}, without a text")


def read_map(body: object) -> Mapping[str, Any]:
    """Return a body that is to be a map. Raises `RabbitMQError` if it is not."""
    if not isinstance(body, Mapping):
        raise refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "the response is not a map")
    return body


def read_queue(body: object) -> QueueInfo:
    """Return the queue that a response describes."""
    told = read_map(body)
    leader = told.get("leader")
    return QueueInfo(
        name=str(told.get("name", "")),
        type=str(told.get("type", "")),
        durable=bool(told.get("durable")),
        exclusive=bool(told.get("exclusive")),
        auto_delete=bool(told.get("auto_delete")),
        arguments=dict(told.get("arguments") or {}),
        message_count=_count(told, "message_count"),
        consumer_count=_count(told, "consumer_count"),
        vhost=str(told.get("vhost", "")),
        leader=None if leader is None else str(leader),
        replicas=[str(one) for one in told.get("replicas") or ()],
    )


def read_count(body: object) -> int:
    """Return the number of messages that were deleted."""
    return _count(read_map(body), "message_count")


def read_bindings(body: object) -> list[Binding]:
    """Return the bindings that a response lists."""
    if not isinstance(body, list):
        raise refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "the response is not a list")
    return [_binding(read_map(one)) for one in body]


def _binding(told: Mapping[str, Any]) -> Binding:
    return Binding(
        source=str(told.get("source", "")),
        queue=told.get("destination_queue"),
        exchange=told.get("destination_exchange"),
        key=str(told.get("binding_key", "")),
        arguments=dict(told.get("arguments") or {}),
        location=str(told.get("location", "")),
    )


def _count(told: Mapping[str, Any], name: str) -> int:
    count = told.get(name)
    return int(count) if isinstance(count, int) else 0
