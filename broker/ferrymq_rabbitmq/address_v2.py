"""Addresses of RabbitMQ 4, version 2, and the native addresses of the broker's nodes.

| a client's address | native address |
|---|---|
| ``/queues/my%20queue`` | ``my queue`` |
| ``/exchanges/sales`` | ``/exchanges/sales`` |
| ``/exchanges/sales/eu.fr`` | ``/exchanges/sales::eu.fr`` |

A queue and an exchange may have the same name: the native address of an exchange begins with
``/exchanges/``, and its name stays percent-encoded (RFC 3986 §2.1). Other addresses are native.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.nodes.node import Space
from ferrymq_broker.values.names import DEFAULT_SPACE, DYNAMIC, PART

QUEUES: Final = "/queues/"
EXCHANGES: Final = "/exchanges/"
MANAGEMENT: Final = "/management"
# The name of the default virtual host.
DEFAULT_VHOST: Final = "/"
# The beginning of names that clients do not give to queues and exchanges.
RESERVED: Final = "amq."
# The beginnings of native addresses that are those of no queue of a client.
_NATIVE: Final = ("$", "/", DYNAMIC)


def native(address: str) -> str:
    """Return the native address for an address. Raises `BrokerError` if it is malformed."""
    if address.startswith(QUEUES):
        return decoded(_only_segment(address, QUEUES), address)
    if address.startswith(EXCHANGES) and PART not in address:
        name, slash, key = address.removeprefix(EXCHANGES).partition("/")
        if not name or "/" in key:
            raise _malformed(address, "/exchanges/NAME or /exchanges/NAME/KEY")
        exchange = exchange_address(decoded(name, address))
        return f"{exchange}{PART}{decoded(key, address)}" if slash and key else exchange
    return address


def named(address: str) -> str:
    """Return the address that a client is told for a native address."""
    if address.startswith(EXCHANGES):
        name, part, key = address.partition(PART)
        return f"{name}/{quote(key, safe='')}" if part else name
    if address.startswith(("/", "$")):
        return address
    return QUEUES + quote(address, safe="")


def exchange_address(name: str) -> str:
    """Return the native address of an exchange."""
    return EXCHANGES + quote(name, safe="")


def exchange_name(address: str) -> str:
    """Return the name of the exchange at a native address; an exchange that no client of RabbitMQ
    has made has its address as its name."""
    return unquote(address.removeprefix(EXCHANGES))


def is_queue_name(name: str) -> bool:
    """Return whether a queue of a client may have this name."""
    return bool(name) and PART not in name and not name.startswith(_NATIVE)


def vhost_of(space: Space) -> str:
    """Return the name by which clients know a virtual host; the default one is ``/``."""
    return DEFAULT_VHOST if space.name == DEFAULT_SPACE else space.name


def decoded(segment: str, address: str) -> str:
    """Return a segment of a path without its percent-encoding. Raises `BrokerError`."""
    try:
        return unquote(segment, errors="strict")
    except UnicodeDecodeError:
        raise _malformed(address, "percent-encoded UTF-8") from None


def _only_segment(address: str, before: str) -> str:
    segment = address.removeprefix(before)
    if not segment or "/" in segment:
        raise _malformed(address, f"{before}NAME, with other characters percent-encoded")
    return segment


def _malformed(address: str, form: str) -> BrokerError:
    return BrokerError(
        "amqp:invalid-field", f"the address {address[:200]!r} is malformed; it must be {form}"
    )
