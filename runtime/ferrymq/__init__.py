"""AMQP 1.0 for Python: clients for asyncio and for threads over one engine without I/O.

    async with ferrymq.connect("amqp://localhost") as connection:
        sender = await connection.sender("orders")
        await sender.send(Message(body=b"..."))
        async for delivery in connection.receiver("orders"):
            await delivery.accept()

`ferrymq.blocking` offers the same to code without an event loop. The names below
are imported when they are first used, so that a program pays for what it needs.
"""

from __future__ import annotations

__version__ = "0.1.0"
