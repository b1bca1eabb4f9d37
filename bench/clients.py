"""`python -m bench.clients`: send messages, or receive and accept them, with the public API of a
client.

The messages are durable and have a body of bytes. Sending ends with the last outcome; the clock of
receiving starts with the attach. The command prints one JSON object with the `seconds`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

CREDIT: Final = 500
"""Credit of the receivers."""


@dataclass(frozen=True)
class Load:
    """Messages to send or to receive."""

    url: str
    address: str
    count: int
    size: int


def send_with_asyncio(load: Load) -> float:
    """Send with `ferrymq`; return the seconds."""
    from ferrymq import Message, connect

    async def send() -> float:
        body = bytes(load.size)
        async with connect(load.url) as connection:
            sender = await connection.sender(load.address)
            began = time.perf_counter()
            await sender.send_many(Message(body, durable=True) for _ in range(load.count))
            return time.perf_counter() - began

    return asyncio.run(send())


def receive_with_asyncio(load: Load) -> float:
    """Receive with `ferrymq`; return the seconds."""
    from ferrymq import connect

    async def receive() -> float:
        left = load.count
        async with connect(load.url) as connection:
            began = time.perf_counter()
            async with connection.receiver(load.address, credit=CREDIT) as receiver:
                async for delivery in receiver:
                    if len(delivery.message.body) != load.size:
                        raise ValueError("a message has another body")
                    await delivery.accept()
                    left -= 1
                    if not left:
                        break
            return time.perf_counter() - began

    return asyncio.run(receive())


def send_blocking(load: Load) -> float:
    """Send with `ferrymq.blocking`; return the seconds."""
    from ferrymq import Message, blocking

    body = bytes(load.size)
    with blocking.connect(load.url) as connection:
        sender = connection.sender(load.address)
        began = time.perf_counter()
        sender.send_many(Message(body, durable=True) for _ in range(load.count))
        return time.perf_counter() - began


def receive_blocking(load: Load) -> float:
    """Receive with `ferrymq.blocking`; return the seconds."""
    from ferrymq import blocking

    left = load.count
    with blocking.connect(load.url) as connection:
        began = time.perf_counter()
        with connection.receiver(load.address, credit=CREDIT) as receiver:
            while left:
                for delivery in receiver.receive_many(min(left, CREDIT)):
                    if len(delivery.message.body) != load.size:
                        raise ValueError("a message has another body")
                    delivery.accept()
                    left -= 1
        return time.perf_counter() - began


def send_with_proton(load: Load) -> float:
    """Send with the handlers of python-qpid-proton; return the seconds."""
    from proton import Message
    from proton.handlers import MessagingHandler
    from proton.reactor import Container

    class Sending(MessagingHandler):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.body = bytes(load.size)
            self.sent = self.accepted = 0
            self.began = self.ended = 0.0

        def on_start(self, event: Any) -> None:
            connection = event.container.connect(load.url)
            event.container.create_sender(connection, load.address)

        def on_sendable(self, event: Any) -> None:
            if not self.sent:
                self.began = time.perf_counter()
            while event.sender.credit and self.sent < load.count:
                event.sender.send(Message(self.body, durable=True))
                self.sent += 1

        def on_accepted(self, event: Any) -> None:
            self.accepted += 1
            if self.accepted == load.count:
                self.ended = time.perf_counter()
                event.connection.close()

    handler = Sending()
    Container(handler).run()
    return handler.ended - handler.began


def receive_with_proton(load: Load) -> float:
    """Receive with the handlers of python-qpid-proton; return the seconds."""
    from proton.handlers import MessagingHandler
    from proton.reactor import Container

    class Receiving(MessagingHandler):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(prefetch=CREDIT, auto_accept=False)
            self.left = load.count
            self.began = self.ended = 0.0

        def on_start(self, event: Any) -> None:
            self.connection = event.container.connect(load.url)

        def on_connection_opened(self, event: Any) -> None:
            self.began = time.perf_counter()
            event.container.create_receiver(event.connection, load.address)

        def on_message(self, event: Any) -> None:
            if not self.left:
                self.release(event.delivery)
                return
            if len(event.message.body) != load.size:
                raise ValueError("a message has another body")
            self.accept(event.delivery)
            self.left -= 1
            if not self.left:
                event.receiver.close()

        def on_link_closed(self, event: Any) -> None:
            self.ended = time.perf_counter()
            event.connection.close()

    handler = Receiving()
    Container(handler).run()
    return handler.ended - handler.began


ASYNCIO: Final = "ferrymq"
BLOCKING: Final = "ferrymq, blocking"
PROTON: Final = "python-qpid-proton"
CLIENTS: Final[dict[str, tuple[Callable[[Load], float], Callable[[Load], float]]]] = {
    ASYNCIO: (send_with_asyncio, receive_with_asyncio),
    BLOCKING: (send_blocking, receive_blocking),
    PROTON: (send_with_proton, receive_with_proton),
}
"""The clients: how each sends, and how it receives."""


def main(argv: list[str] | None = None) -> int:
    """Run the command and return the exit status."""
    made = argparse.ArgumentParser(prog="python -m bench.clients", description=__doc__)
    made.add_argument("client", choices=CLIENTS)
    made.add_argument("direction", choices=("send", "receive"))
    made.add_argument("--url", required=True, help="the broker")
    made.add_argument("--address", required=True, help="its queue")
    made.add_argument("--count", type=int, default=10_000, help="messages")
    made.add_argument("--size", type=int, default=100, help="bytes of the body")
    arguments = made.parse_args(argv)
    load = Load(arguments.url, arguments.address, arguments.count, arguments.size)
    send, receive = CLIENTS[arguments.client]
    seconds = send(load) if arguments.direction == "send" else receive(load)
    if seconds <= 0:
        print(f"{arguments.client} ended early", file=sys.stderr)
        return 1
    print(json.dumps({"seconds": seconds}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
