"""A queue broker on Proton's Python binding, using its public API in a few dozen lines.

Queues are in memory, created on attach, first in first out; consumers with credit are served in
turn. It is measured beside ferrymq's broker, with the same client, in the same run.
"""

from __future__ import annotations

import signal
import socket
from collections import deque
from typing import Any

from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import Container


class Queue:
    """The messages and the consumers of a queue."""

    def __init__(self) -> None:
        self.messages: deque[Message] = deque()
        self.consumers: deque[Any] = deque()

    def dispatch(self) -> None:
        """Send messages in turn to consumers with credit."""
        idle = 0
        while self.messages and idle < len(self.consumers):
            sender = self.consumers[0]
            self.consumers.rotate(-1)
            if sender.credit:
                sender.send(self.messages.popleft())
                idle = 0
            else:
                idle += 1


class Broker(MessagingHandler):  # type: ignore[misc]
    """A broker that routes by address and accepts messages once they are queued."""

    def __init__(self, port: int) -> None:
        super().__init__(prefetch=500)
        self.port = port
        self.queues: dict[str, Queue] = {}

    def queue(self, address: str) -> Queue:
        """Return the queue with that address; create it if it is missing."""
        return self.queues.setdefault(address, Queue())

    def on_start(self, event: Any) -> None:
        """Start listening."""
        event.container.listen(f"127.0.0.1:{self.port}")
        print(f"listening amqp://127.0.0.1:{self.port}\nready", flush=True)

    def on_link_opening(self, event: Any) -> None:
        """Accept the client's source and target."""
        link = event.link
        link.snd_settle_mode = link.remote_snd_settle_mode
        if link.is_sender:
            link.source.address = link.remote_source.address
            self.queue(link.source.address).consumers.append(link)
        else:
            link.target.address = link.remote_target.address

    def on_link_closing(self, event: Any) -> None:
        """Remove a consumer."""
        self._forget(event.link)

    def on_connection_closing(self, event: Any) -> None:
        """Remove the consumers of a connection that is being closed."""
        self.on_disconnected(event)

    def on_disconnected(self, event: Any) -> None:
        """Remove the consumers of a lost connection."""
        link = event.connection.link_head(0)
        while link is not None:
            self._forget(link)
            link = link.next(0)

    def on_sendable(self, event: Any) -> None:
        """Handle new credit of a consumer, or a drain."""
        self.queue(event.link.source.address).dispatch()
        if event.link.drain_mode:
            event.link.drained()

    def on_message(self, event: Any) -> None:
        """Queue a producer's message, which is accepted when this returns."""
        queue = self.queue(event.link.target.address)
        queue.messages.append(event.message)
        queue.dispatch()

    def _forget(self, link: Any) -> None:
        if link.is_sender and link.source.address:
            consumers = self.queue(link.source.address).consumers
            if link in consumers:
                consumers.remove(link)


def main() -> None:
    """Run `python -m bench.peers.proton_broker`."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    Container(Broker(port)).run()


if __name__ == "__main__":
    main()
