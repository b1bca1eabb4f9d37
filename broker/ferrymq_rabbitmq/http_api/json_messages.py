"""Messages in JSON: publishing one, and getting some out of a queue."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from librt.strings import BytesWriter

from ferrymq_broker.management.authorisation import expect_of_node, expect_send
from ferrymq_broker.management.operation import Call
from ferrymq_broker.nodes.entry import AVAILABLE
from ferrymq_broker.nodes.exchanges.exchange import Exchange
from ferrymq_broker.nodes.exchanges.routing_key_target import RoutingKeyTarget
from ferrymq_broker.nodes.message import BrokerMessage, admit
from ferrymq_broker.nodes.message_view import view_of
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.nodes.request import read_request
from ferrymq_broker.values.names import PART
from ferrymq_codec.errors import DecodeError, EncodeError
from ferrymq_codec.scalars import Timestamp
from ferrymq_rabbitmq.address_v2 import exchange_address
from ferrymq_rabbitmq.management.request_refused import (
    RequestRefused,
    bad_request,
    text_in,
)
from ferrymq_rabbitmq.routing import EXCHANGE, ROUTING_KEY, routed
from ferrymq_types.messaging import (
    ApplicationProperties,
    Data,
    Header,
    MessageAnnotations,
    Properties,
    encode_application_properties,
    encode_data,
    encode_header,
    encode_message_annotations,
    encode_properties,
)

if TYPE_CHECKING:
    from ferrymq_broker.addresses.address_space import AddressSpace
    from ferrymq_broker.nodes.entry import Entry
    from ferrymq_broker.nodes.link_terms import Party
    from ferrymq_broker.nodes.node import Node

# RabbitMQ's name of the default exchange in paths.
DEFAULT_EXCHANGE: Final = "amq.default"
# The annotations with properties of AMQP 0-9-1 that AMQP 1.0 has no place for.
_TYPE: Final = "x-basic-type"
_APP_ID: Final = "x-basic-app-id"
# The most messages of one request.
_MOST: Final = 1000
# The delivery mode of messages that survive a restart, and of others.
_PERSISTENT: Final = 2
_TRANSIENT: Final = 1
_REQUEUES: Final = ("ack_requeue_true", "reject_requeue_true")
_ACK_MODES: Final = (*_REQUEUES, "ack_requeue_false", "reject_requeue_false")


def publish(
    space: AddressSpace, party: Party, exchange: str, body: Mapping[str, object]
) -> dict[str, object]:
    """Publish the message of a request to an exchange; return whether it went anywhere."""
    key = text_in(body, "routing_key")
    node = _target(space, party, exchange, key)
    if node is None:
        return {"routed": False}
    message = routed(_message(body), node)
    return {"routed": node.publish(message) is None}


def get_messages(
    space: AddressSpace, party: Party, queue: Queue, body: Mapping[str, object]
) -> list[dict[str, object]]:
    """Return the first messages of a queue that no consumer holds. They stay in the queue or leave
    it, as the request says."""
    mode = body.get("ackmode")
    if mode is None:
        mode = _REQUEUES[0] if str(body.get("requeue", True)).lower() == "true" else _ACK_MODES[2]
    if mode not in _ACK_MODES:
        raise bad_request(f"ackmode: {mode!r} is none of {', '.join(_ACK_MODES)}")
    stays = mode in _REQUEUES
    encoding = text_in(body, "encoding", "auto")
    truncate = _whole(body, "truncate", -1)
    count = min(_whole(body, "count", 1), _MOST)
    expect_of_node(Call(party, queue.address), "PEEK" if stays else "MOVE", space, "queue")
    queue.expect_unlocked(party.connection)
    found: list[dict[str, object]] = []
    left = int(queue.entries.available)
    for entry in queue.entries.select_available(count):
        if entry.state != AVAILABLE:
            continue
        message = queue.entries.read_message(entry)
        if message is None:
            continue
        left -= 1
        told = _told(message, party, encoding, truncate)
        told["redelivered"] = entry.attempts > 0
        told["message_count"] = max(0, left)
        found.append(told)
        if not stays:
            _take(queue, entry, rejected=mode == "reject_requeue_false")
    return found


def _take(queue: Queue, entry: Entry, rejected: bool) -> None:
    """Take an available message out of its queue; a rejected one becomes a dead letter."""
    entries = queue.entries
    if entry.is_out() and not entries.page_in(entry):
        return
    if rejected:
        queue.rejected += 1
        queue.lifecycle.on_rejected(entry, None)
    # A dead letter that comes back to this queue may have pushed it out.
    if entry.state == AVAILABLE:
        entries.drop(entry)


def _target(space: AddressSpace, party: Party, exchange: str, key: str) -> Node | None:
    """Return the node for a message; None if the default exchange has no queue for it."""
    if exchange in ("", DEFAULT_EXCHANGE):
        expect_send(party, space, key)
        node = space.find(key)
        return node.target("") if node is not None else None
    address = exchange_address(exchange)
    expect_send(party, space, f"{address}{PART}{key}" if key else address)
    node = space.find(address)
    if not isinstance(node, Exchange):
        raise RequestRefused.missing("exchange", exchange)
    return RoutingKeyTarget(node, key)


def _message(body: Mapping[str, object]) -> BrokerMessage:
    """Return the message of a request. Raises `RequestRefused`."""
    text = text_in(body, "payload")
    encoding = text_in(body, "payload_encoding", "string")
    payload = text.encode(errors="surrogatepass")
    if encoding == "base64":
        try:
            payload = base64.b64decode(text, validate=False)
        except binascii.Error as error:
            raise bad_request(f"payload: it is no Base64: {error}") from None
    elif encoding != "string":
        raise bad_request(f"payload_encoding: {encoding!r} is neither 'string' nor 'base64'")
    given = body.get("properties", {})
    if not isinstance(given, dict):
        given = {}
    w = BytesWriter()
    try:
        _write_sections(w, given)
        encode_data(w, Data(payload))
        return admit(w.getvalue(), 0)
    except (EncodeError, DecodeError, TypeError, ValueError, OverflowError) as error:
        raise bad_request(f"properties: {error}") from None


def _write_sections(w: BytesWriter, given: Mapping[str, Any]) -> None:
    expiration = given.get("expiration")
    header = Header(
        durable=int(given.get("delivery_mode", _TRANSIENT)) == _PERSISTENT,
        priority=int(given.get("priority", 4)),
        ttl=None if expiration is None else int(expiration),
    )
    encode_header(w, header)
    annotations: dict[str | int, object] = {}
    application: dict[str, object] = {}
    headers = given.get("headers", {})
    for name, value in (headers if isinstance(headers, dict) else {}).items():
        if not isinstance(value, str | int | float | bool | None):
            raise ValueError(f"headers: {name}: only texts, numbers and booleans are possible")
        (annotations if str(name).startswith("x-") else application)[str(name)] = value
    for property, annotation in (("type", _TYPE), ("app_id", _APP_ID)):
        if property in given:
            annotations[annotation] = str(given[property])
    if annotations:
        encode_message_annotations(w, MessageAnnotations(value=annotations))
    created = given.get("timestamp")
    user = given.get("user_id")
    encode_properties(
        w,
        Properties(
            message_id=_text(given, "message_id"),
            user_id=None if user is None else str(user).encode(),
            reply_to=_text(given, "reply_to"),
            correlation_id=_text(given, "correlation_id"),
            content_type=_text(given, "content_type"),
            content_encoding=_text(given, "content_encoding"),
            creation_time=None if created is None else Timestamp(int(created) * 1000),
        ),
    )
    if application:
        encode_application_properties(w, ApplicationProperties(value=application))


def _text(given: Mapping[str, Any], name: str) -> str | None:
    value = given.get(name)
    return None if value is None else str(value)


def _told(message: BrokerMessage, party: Party, encoding: str, truncate: int) -> dict[str, object]:
    """Return a message in JSON's terms."""
    try:
        sections = read_request(message, party)
        header = message.header()
    except DecodeError:
        sections, header = None, Header()
    view = view_of(message)
    annotations = view.message_annotations
    body = message.payload if sections is None or message.opaque else sections.body
    payload = _payload(body)
    size = len(payload)
    if truncate >= 0:
        payload = payload[:truncate]
    told: dict[str, object] = {
        "payload_bytes": size,
        "exchange": annotations.get(EXCHANGE, ""),
        "routing_key": annotations.get(ROUTING_KEY, ""),
        "properties": _properties(message, header, annotations),
    }
    if encoding == "auto":
        try:
            told["payload"] = payload.decode()
            told["payload_encoding"] = "string"
            return told
        except UnicodeDecodeError:
            pass
    told["payload"] = base64.b64encode(payload).decode()
    told["payload_encoding"] = "base64"
    return told


def _payload(body: object) -> bytes:
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body)
    if isinstance(body, str):
        return body.encode(errors="surrogatepass")
    return b"" if body is None else repr(body).encode()


def _properties(
    message: BrokerMessage, header: Header, annotations: Mapping[str | int, object]
) -> dict[str, object]:
    view = view_of(message)
    found: dict[str, object] = {
        "delivery_mode": _PERSISTENT if message.durable else _TRANSIENT,
        "priority": int(header.priority),
    }
    if header.ttl is not None:
        found["expiration"] = str(int(header.ttl))
    properties = view.properties
    if properties is not None:
        for name in ("content_type", "content_encoding", "reply_to"):
            value = getattr(properties, name)
            if value is not None:
                found[name] = str(value)
        for name in ("message_id", "correlation_id"):
            value = getattr(properties, name)
            if value is not None:
                found[name] = _shown(value)
        if properties.user_id is not None:
            found["user_id"] = bytes(properties.user_id).decode(errors="replace")
        if properties.creation_time is not None:
            found["timestamp"] = int(properties.creation_time) // 1000
    for property, annotation in (("type", _TYPE), ("app_id", _APP_ID)):
        if annotation in annotations:
            found[property] = _shown(annotations[annotation])
    headers = {str(name): _shown(value) for name, value in view.application_properties.items()}
    for key, annotation_value in annotations.items():
        if key not in (EXCHANGE, ROUTING_KEY, _TYPE, _APP_ID):
            headers[str(key)] = _shown(annotation_value)
    if headers:
        found["headers"] = headers
    return found


def _shown(value: object) -> object:
    """Return a value for JSON."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    return str(value)


def _whole(body: Mapping[str, object], key: str, default: int) -> int:
    """Return a number, which some tools send as text."""
    value = body.get(key, default)
    try:
        return int(str(value))
    except ValueError:
        raise bad_request(f"{key}: {value!r:.60} is no number") from None
