"""Addresses of RabbitMQ 4, version 2: names in paths, percent-encoded (RFC 3986 §2.1)."""

from __future__ import annotations

from urllib.parse import quote


def queue_address(name: str) -> str:
    """Return the address of a queue or stream, to send to it or to receive from it.

    ``queue_address("my queue")`` is ``/queues/my%20queue``. Raises ValueError for an empty name.
    """
    return f"/queues/{encode_name(name, 'queue')}"


def exchange_address(name: str, key: str | None = None) -> str:
    """Return the address of an exchange, to send to it with a routing key.

    ``exchange_address("sales", "eu.fr")`` is ``/exchanges/sales/eu.fr``. Without a key, the routing
    key of the messages is empty. Raises ValueError for an empty name: to send to a queue, which the
    default exchange of AMQP 0-9-1 is for, use `queue_address`.
    """
    address = f"/exchanges/{encode_name(name, 'exchange')}"
    return address if not key else f"{address}/{quote(key, safe='')}"


def vhost(name: str) -> str:
    """Return the `hostname` that opens a virtual host.

    ``ferrymq.connect(url, hostname=vhost("shop"))``. Without it, the connection is to RabbitMQ's
    default virtual host, which is ``/`` unless it is configured. Raises ValueError for an empty
    name.
    """
    if not name:
        raise ValueError("a virtual host has a name; the default one is '/'")
    return f"vhost:{name}"


def encode_name(name: str, what: str) -> str:
    """Return a name as part of a path. Raises ValueError if it is empty."""
    if not name:
        hint = "; to send to a queue, use queue_address(name)" if what == "exchange" else ""
        raise ValueError(f"the name of the {what} is empty{hint}")
    return quote(name, safe="")
