"""`ferrymq.connect`, which imports the client when it is called.

asyncio and TLS take longer to import than the types and the messages. A program that imports
`connect`, and does not connect in this run, need not wait for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Unpack

if TYPE_CHECKING:
    from ferrymq.aio.connection import Connection
    from ferrymq.aio.opening import Opening
    from ferrymq.options import ConnectionArguments


def connect(
    url: str | Sequence[str] = "amqp://localhost", **options: Unpack[ConnectionArguments]
) -> Opening[Connection]:
    """Open a connection; `ConnectionOptions` explains the arguments.

        async with ferrymq.connect("amqp://localhost") as connection: ...
        connection = await ferrymq.connect("amqps://user:password@broker.example")

    It is `ferrymq.aio.connect`, where the errors are listed.
    """
    from ferrymq.aio.connect import connect as connect_with_asyncio

    return connect_with_asyncio(url, **options)
