"""Redirects of connections to another member of the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ferrymq_broker.values.names import VHOST
from ferrymq_types.transport import Error

if TYPE_CHECKING:
    from ferrymq_broker.broker import Broker
    from ferrymq_types.transport import Open

REDIRECT: Final = "amqp:connection:redirect"


def keep_virtual_host(error: Error, open: Open | None, broker: Broker) -> Error:
    """Return a redirect with the hostname of the client's open, if that names a virtual host.

    The client sends the hostname of a redirect in its next open (AMQP 1.0 §2.8.16), and all members
    have the same virtual hosts. Other errors, and other clients' redirects, stay as they are.
    """
    hostname = "" if open is None else open.hostname
    if error.condition != REDIRECT or not hostname:
        return error
    if not hostname.startswith(VHOST) and hostname.lower() not in broker.hosts:
        return error
    info = {**(error.info or {}), "hostname": hostname}
    return Error(condition=REDIRECT, description=error.description, info=info)
