"""Requests about bindings.

The path of a binding has its parts, percent-encoded:
``/bindings/src=EXCHANGE;dstq=QUEUE;key=KEY;args=HASH``, or ``dste=EXCHANGE``. The hash of the
arguments is empty without any.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote

from ferrymq_broker.management.authorisation import expect_send, may
from ferrymq_broker.management.exchanges import BindingEntities
from ferrymq_broker.management.operation import Call
from ferrymq_broker.nodes.exchanges.exchange import Exchange
from ferrymq_broker.values.rights import RECEIVE
from ferrymq_rabbitmq.address_v2 import EXCHANGES, exchange_address, exchange_name, vhost_of
from ferrymq_rabbitmq.management.request_refused import (
    RequestRefused,
    arguments_in,
    bad_request,
    text_in,
)

if TYPE_CHECKING:
    from ferrymq_broker.addresses.address_space import AddressSpace
    from ferrymq_broker.nodes.exchanges.binding import Binding
    from ferrymq_broker.nodes.link_terms import Party

_HASH_BYTES: Final = 8


class BindingRequests:
    """The handlers of requests about the bindings of one virtual host."""

    def __init__(self, space: AddressSpace) -> None:
        self._space = space
        self._bindings = BindingEntities(space)

    def bind(self, party: Party, body: Mapping[str, object]) -> None:
        """Bind a queue or an exchange to an exchange; do nothing if it is bound so already."""
        source = text_in(body, "source")
        destination = _destination(body.get("destination_queue"), body.get("destination_exchange"))
        exchange = self._existing(source)
        if self._space.find(destination) is None:
            raise self._missing(destination)
        call = self._call(
            party, exchange, destination, text_in(body, "binding_key", ""), arguments_in(body)
        )
        if self._may_read(party, exchange.address):
            expect_send(party, self._space, destination)
        else:
            self._bindings.authorise("CREATE", call)
        self._bindings.create(call)

    def list(self, party: Party, asked: Mapping[str, str]) -> list[dict[str, object]]:
        """Return the bindings of an exchange to one destination with one key."""
        exchange = self._existing(asked.get("src", ""))
        self._authorise(party, exchange.address, "READ")
        destination = _destination(asked.get("dstq"), asked.get("dste"))
        key = asked.get("key", "")
        return [
            _described(exchange, binding)
            for binding in exchange.bindings()
            if binding.destination == destination and binding.key == key
        ]

    def unbind(self, party: Party, path: str) -> None:
        """Remove the binding of a path; do nothing if there is none."""
        parts = dict(part.partition("=")[::2] for part in path.split(";"))
        if "src" not in parts or not ("dstq" in parts or "dste" in parts):
            raise bad_request(f"the path of a binding is malformed: {path[:200]!r}")
        known = {name: unquote(value) for name, value in parts.items()}
        exchange = self._existing(known["src"])
        self._authorise(party, exchange.address, "DELETE")
        destination = _destination(known.get("dstq"), known.get("dste"))
        for binding in exchange.bindings():
            if (
                binding.destination == destination
                and binding.key == known.get("key", "")
                and binding_hash(binding.arguments) == known.get("args", "")
            ):
                exchange.unbind(destination, binding.key, binding.arguments)
                return

    def remove(
        self,
        party: Party,
        source: str,
        destination: str,
        key: str,
        arguments: dict[str, object],
    ) -> None:
        """Remove the binding to a native address; do nothing if there is none, or no exchange."""
        if not source:
            raise _no_bindings()
        address = exchange_address(source)
        self._authorise(party, address, "DELETE")
        exchange = self._space.find(address)
        if isinstance(exchange, Exchange):
            exchange.unbind(destination, key, arguments)

    def _may_read(self, party: Party, exchange: str) -> bool:
        """Return whether a party may receive at an exchange: RabbitMQ's permission to read it, with
        which clients bind to it."""
        return may(party, RECEIVE, self._space, exchange)

    def _authorise(self, party: Party, exchange: str, operation: str) -> None:
        if not self._may_read(party, exchange):
            self._bindings.authorise(operation, Call(party, "", {"exchange": exchange}))

    @staticmethod
    def _call(
        party: Party, exchange: Exchange, destination: str, key: str, arguments: dict[str, object]
    ) -> Call:
        return Call(
            party,
            "",
            {
                "exchange": exchange.address,
                "destination": destination,
                "key": key,
                "arguments": arguments,
            },
        )

    def _existing(self, name: str) -> Exchange:
        if not name:
            raise _no_bindings()
        address = exchange_address(name)
        node = self._space.find(address)
        if not isinstance(node, Exchange):
            raise self._missing(address)
        return node

    def _missing(self, address: str) -> RequestRefused:
        what = "exchange" if address.startswith(EXCHANGES) else "queue"
        name = exchange_name(address) if what == "exchange" else address
        return RequestRefused(
            HTTPStatus.NOT_FOUND,
            f"no {what} {name[:200]!r} in vhost {vhost_of(self._space)!r}",
        )


def _no_bindings() -> RequestRefused:
    return RequestRefused(HTTPStatus.FORBIDDEN, "the default exchange has no bindings of clients")


def _destination(queue: object, exchange: object) -> str:
    """Return the native address of a destination. Raises `RequestRefused` unless there is one of
    the two names."""
    if isinstance(queue, str) and exchange is None:
        return queue
    if isinstance(exchange, str) and queue is None:
        return exchange_address(exchange)
    raise bad_request("a binding leads to a queue or to an exchange: one name is needed")


def _described(exchange: Exchange, binding: Binding) -> dict[str, object]:
    destination = binding.destination
    source = exchange_name(exchange.address)
    if destination.startswith(EXCHANGES):
        kind, letter, name = "exchange", "e", exchange_name(destination)
    else:
        kind, letter, name = "queue", "q", destination
    location = ";".join(
        f"{key}={quote(value, safe='')}"
        for key, value in (
            ("src", source),
            (f"dst{letter}", name),
            ("key", binding.key),
            ("args", binding_hash(binding.arguments)),
        )
    )
    return {
        "source": source,
        f"destination_{kind}": name,
        "binding_key": binding.key,
        "arguments": binding.arguments,
        "location": f"/bindings/{location}",
    }


def binding_hash(arguments: Mapping[str, object]) -> str:
    """Return a short text for the arguments of a binding; empty without any."""
    if not arguments:
        return ""
    text = json.dumps(arguments, sort_keys=True, default=repr)
    return hashlib.blake2b(text.encode(), digest_size=_HASH_BYTES).hexdigest()
