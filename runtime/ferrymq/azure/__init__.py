"""Azure Service Bus and Event Hubs: connection strings, tokens, addresses and positions.

    async with azure.connect(os.environ["SERVICE_BUS"], reconnect=True) as connection:
        sender = await connection.sender("orders")
        receiver = await connection.receiver(azure.subscription_address("news", "mine"))

The connection is a `ferrymq.Connection`; `ferrymq.azure.blocking.connect` gives one of the blocking
client. Tokens for its links are put, and renewed, by itself.
"""

from __future__ import annotations

from ferrymq.azure.addresses import (
    consumer_address,
    dead_letter_address,
    partition_address,
    subscription_address,
)
from ferrymq.azure.authorizer import Authorizer, TokenRefused
from ferrymq.azure.connecting import connect
from ferrymq.azure.connection_string import AccessKey, ConnectionString
from ferrymq.azure.credentials import AccessToken, Credential, Token
from ferrymq.azure.positions import StartingPosition, starting_position

__all__ = [
    "AccessToken",
    "Authorizer",
    "ConnectionString",
    "Credential",
    "AccessKey",
    "StartingPosition",
    "Token",
    "TokenRefused",
    "connect",
    "consumer_address",
    "dead_letter_address",
    "partition_address",
    "starting_position",
    "subscription_address",
]
