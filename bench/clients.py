"""`python -m bench.clients`: send messages, or receive and accept them, with the public API of a
client.

The messages are durable and have a body of bytes. Sending ends with the last outcome; the clock of
receiving starts with the attach. The command prints one JSON object with the `seconds`, and with
the `processor` time of the process in seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

CREDIT: Final = 500
"""Credit of the receivers."""

GATHERED: Final = 1000
"""Sends that `send_gathered` begins together."""

# Bytes of a transfer with a message of 100 B, and of the disposition that answers it.
_TRANSFER: Final = 150
_DISPOSITION: Final = 35


@dataclass(frozen=True)
class Load:
    """Messages to send or to receive."""

    url: str
    address: str
    count: int
    size: int


@dataclass(frozen=True)
class Took:
    """Cost of a load: seconds, and processor time of this process in seconds."""

    seconds: float
    processor: float


class Clock:
    """Clock that runs from its creation on."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._used = time.process_time()

    def stop(self) -> Took:
        """Return what has passed since the creation."""
        return Took(time.perf_counter() - self._began, time.process_time() - self._used)


def send_with_asyncio(load: Load) -> Took:
    """Send with `ferrymq`."""
    from ferrymq import Message, connect

    async def send() -> Took:
        body = bytes(load.size)
        async with connect(load.url) as connection:
            sender = await connection.sender(load.address)
            clock = Clock()
            await sender.send_many(Message(body, durable=True) for _ in range(load.count))
            return clock.stop()

    return asyncio.run(send())


def send_gathered(load: Load) -> Took:
    """Send with `ferrymq`: many calls of `send` together, in `asyncio.gather`."""
    from ferrymq import Message, connect

    async def send() -> Took:
        body = bytes(load.size)
        async with connect(load.url) as connection:
            sender = await connection.sender(load.address)
            clock = Clock()
            for first in range(0, load.count, GATHERED):
                messages = range(first, min(first + GATHERED, load.count))
                await asyncio.gather(*(sender.send(Message(body, durable=True)) for _ in messages))
            return clock.stop()

    return asyncio.run(send())


def send_each_with_asyncio(load: Load) -> Took:
    """Send with `ferrymq`, each message after the outcome of the one before."""
    from ferrymq import Message, connect

    async def send() -> Took:
        body = bytes(load.size)
        async with connect(load.url) as connection:
            sender = await connection.sender(load.address)
            clock = Clock()
            for _ in range(load.count):
                await sender.send(Message(body, durable=True))
            return clock.stop()

    return asyncio.run(send())


def echo_with_asyncio(load: Load) -> Took:
    """Exchange as many bytes as such sends with an echo server of asyncio, with asyncio alone."""
    server = subprocess.Popen(
        [sys.executable, "-c", _ECHO, str(_DISPOSITION)], stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    port = int(server.stdout.readline())

    class Client(asyncio.Protocol):
        answered: asyncio.Future[None]

        def data_received(self, data: bytes) -> None:
            self.answered.set_result(None)

    # As `ferrymq.aio.transport` does: otherwise a read of asyncio may cost a mapping of memory.
    bytes(524_288)

    async def exchange() -> Took:
        loop = asyncio.get_running_loop()
        transport, client = await loop.create_connection(Client, "127.0.0.1", port)
        data = bytes(_TRANSFER)
        clock = Clock()
        for _ in range(load.count):
            client.answered = loop.create_future()
            transport.write(data)
            await client.answered
        took = clock.stop()
        transport.close()
        return took

    try:
        return asyncio.run(exchange())
    finally:
        server.kill()
        server.wait()


_ECHO: Final = """
import asyncio, sys

class Echo(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.transport.write(data[: int(sys.argv[1])])

async def main():
    server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

asyncio.run(main())
"""


def receive_with_asyncio(load: Load) -> Took:
    """Receive with `ferrymq`."""
    from ferrymq import connect

    async def receive() -> Took:
        left = load.count
        async with connect(load.url) as connection:
            clock = Clock()
            async with connection.receiver(load.address, credit=CREDIT) as receiver:
                async for delivery in receiver:
                    if len(delivery.message.body) != load.size:
                        raise ValueError("a message has another body")
                    await delivery.accept()
                    left -= 1
                    if not left:
                        break
            return clock.stop()

    return asyncio.run(receive())


def send_blocking(load: Load) -> Took:
    """Send with `ferrymq.blocking`."""
    from ferrymq import Message, blocking

    body = bytes(load.size)
    with blocking.connect(load.url) as connection:
        sender = connection.sender(load.address)
        clock = Clock()
        sender.send_many(Message(body, durable=True) for _ in range(load.count))
        return clock.stop()


def receive_blocking(load: Load) -> Took:
    """Receive with `ferrymq.blocking`."""
    from ferrymq import blocking

    left = load.count
    with blocking.connect(load.url) as connection:
        clock = Clock()
        with connection.receiver(load.address, credit=CREDIT) as receiver:
            while left:
                for delivery in receiver.receive_many(min(left, CREDIT)):
                    if len(delivery.message.body) != load.size:
                        raise ValueError("a message has another body")
                    delivery.accept()
                    left -= 1
        return clock.stop()


def send_each_blocking(load: Load) -> Took:
    """Send with `ferrymq.blocking`, each message after the outcome of the one before."""
    from ferrymq import Message, blocking

    body = bytes(load.size)
    with blocking.connect(load.url) as connection:
        sender = connection.sender(load.address)
        clock = Clock()
        for _ in range(load.count):
            sender.send(Message(body, durable=True))
        return clock.stop()


def receive_each_blocking(load: Load) -> Took:
    """Receive with `ferrymq.blocking`, one message with each call."""
    from ferrymq import blocking

    with blocking.connect(load.url) as connection:
        clock = Clock()
        with connection.receiver(load.address, credit=CREDIT) as receiver:
            for _ in range(load.count):
                delivery = receiver.receive()
                if len(delivery.message.body) != load.size:
                    raise ValueError("a message has another body")
                delivery.accept()
        return clock.stop()


def send_each_with_proton(load: Load) -> Took:
    """Send with the `BlockingConnection` of python-qpid-proton."""
    from proton import Message
    from proton.utils import BlockingConnection

    body = bytes(load.size)
    connection = BlockingConnection(load.url)
    sender = connection.create_sender(load.address)
    clock = Clock()
    for _ in range(load.count):
        sender.send(Message(body, durable=True))
    took = clock.stop()
    connection.close()
    return took


def receive_each_with_proton(load: Load) -> Took:
    """Receive with the `BlockingConnection` of python-qpid-proton."""
    from proton.utils import BlockingConnection

    connection = BlockingConnection(load.url)
    clock = Clock()
    receiver = connection.create_receiver(load.address, credit=CREDIT)
    for _ in range(load.count):
        if len(receiver.receive().body) != load.size:
            raise ValueError("a message has another body")
        receiver.accept()
    took = clock.stop()
    connection.close()
    return took


def send_with_proton(load: Load) -> Took:
    """Send with the handlers of python-qpid-proton."""
    from proton import Message
    from proton.handlers import MessagingHandler
    from proton.reactor import Container

    class Sending(MessagingHandler):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.body = bytes(load.size)
            self.sent = self.accepted = 0
            self.clock = Clock()
            self.took = Took(0, 0)

        def on_start(self, event: Any) -> None:
            connection = event.container.connect(load.url)
            event.container.create_sender(connection, load.address)

        def on_sendable(self, event: Any) -> None:
            if not self.sent:
                self.clock = Clock()
            while event.sender.credit and self.sent < load.count:
                event.sender.send(Message(self.body, durable=True))
                self.sent += 1

        def on_accepted(self, event: Any) -> None:
            self.accepted += 1
            if self.accepted == load.count:
                self.took = self.clock.stop()
                event.connection.close()

    handler = Sending()
    Container(handler).run()
    return handler.took


def receive_with_proton(load: Load) -> Took:
    """Receive with the handlers of python-qpid-proton."""
    from proton.handlers import MessagingHandler
    from proton.reactor import Container

    class Receiving(MessagingHandler):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(prefetch=CREDIT, auto_accept=False)
            self.left = load.count
            self.clock = Clock()
            self.took = Took(0, 0)

        def on_start(self, event: Any) -> None:
            self.connection = event.container.connect(load.url)

        def on_connection_opened(self, event: Any) -> None:
            self.clock = Clock()
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
            self.took = self.clock.stop()
            event.connection.close()

    handler = Receiving()
    Container(handler).run()
    return handler.took


ASYNCIO: Final = "ferrymq"
BLOCKING: Final = "ferrymq, blocking"
PROTON: Final = "python-qpid-proton"
PROTON_BLOCKING: Final = "python-qpid-proton, blocking"
ECHO: Final = "asyncio echo"
SEND: Final = "send"
RECEIVE: Final = "receive"
SEND_EACH: Final = "send, one after another"
RECEIVE_EACH: Final = "receive, one with each call"
GATHER: Final = "send, gathered"
CLIENTS: Final[dict[str, dict[str, Callable[[Load], Took]]]] = {
    ASYNCIO: {
        SEND: send_with_asyncio,
        RECEIVE: receive_with_asyncio,
        SEND_EACH: send_each_with_asyncio,
        GATHER: send_gathered,
    },
    BLOCKING: {
        SEND: send_blocking,
        RECEIVE: receive_blocking,
        SEND_EACH: send_each_blocking,
        RECEIVE_EACH: receive_each_blocking,
    },
    PROTON: {SEND: send_with_proton, RECEIVE: receive_with_proton},
    PROTON_BLOCKING: {SEND_EACH: send_each_with_proton, RECEIVE_EACH: receive_each_with_proton},
    # It uses no broker, and leaves no messages.
    ECHO: {SEND_EACH: echo_with_asyncio},
}
"""The clients, and what each does."""


def main(argv: list[str] | None = None) -> int:
    """Run the command and return the exit status."""
    made = argparse.ArgumentParser(prog="python -m bench.clients", description=__doc__)
    made.add_argument("client", choices=CLIENTS)
    made.add_argument("work", help="what the client does: send, receive, ...")
    made.add_argument("--url", required=True, help="the broker")
    made.add_argument("--address", required=True, help="its queue")
    made.add_argument("--count", type=int, default=10_000, help="messages")
    made.add_argument("--size", type=int, default=100, help="bytes of the body")
    arguments = made.parse_args(argv)
    works = CLIENTS[arguments.client]
    if arguments.work not in works:
        made.error(f"{arguments.client} does one of: {'; '.join(works)}")
    took = works[arguments.work](
        Load(arguments.url, arguments.address, arguments.count, arguments.size)
    )
    if took.seconds <= 0:
        print(f"{arguments.client} ended early", file=sys.stderr)
        return 1
    print(json.dumps({"seconds": took.seconds, "processor": took.processor}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
