"""A TCP echo on uvloop: the least work for a Python server between a read and a write."""

from __future__ import annotations

import asyncio
import signal
import socket
from typing import cast


class Echo(asyncio.Protocol):
    """A protocol that writes back all bytes it reads."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = cast(asyncio.Transport, transport)
        raw = transport.get_extra_info("socket")
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        """Write the data back."""
        self.transport.write(data)


async def serve() -> None:
    """Echo on a free port until SIGTERM."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    server = await loop.create_server(Echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    print(f"listening tcp://127.0.0.1:{port}\nready", flush=True)
    await stop.wait()
    server.close()


def main() -> None:
    """Run `python -m bench.peers.echo`, on asyncio's own loop if uvloop is not installed."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(serve())
    else:
        uvloop.run(serve())


if __name__ == "__main__":
    main()
