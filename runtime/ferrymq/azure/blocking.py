"""Connecting to Azure Service Bus and Event Hubs with the blocking client.

with ferrymq.azure.blocking.connect(os.environ["SERVICE_BUS"]) as connection:
    connection.sender("orders").send("one")
"""

from __future__ import annotations

from typing import Unpack

from ferrymq.azure.connecting import TOKEN_LIFETIME, connection_arguments
from ferrymq.azure.credentials import Credential
from ferrymq.blocking.connection import Connection
from ferrymq.blocking.connection import connect as connect_amqp
from ferrymq.durations import Duration
from ferrymq.options import ConnectionArguments

__all__ = ["connect"]


def connect(
    where: str,
    *,
    credential: Credential | None = None,
    websocket: bool = False,
    token_lifetime: Duration = TOKEN_LIFETIME,
    **options: Unpack[ConnectionArguments],
) -> Connection:
    """Open a connection; arguments and errors are those of `ferrymq.azure.connect`."""
    url, settings = connection_arguments(where, credential, websocket, token_lifetime, options)
    return connect_amqp(url, **settings)
