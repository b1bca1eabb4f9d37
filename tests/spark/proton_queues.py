"""A small broker on Proton's Python binding, for what has to work with brokers that are not ours.

Queues in memory, made on attach. A source that asks for copies gets them, from the front to the
back; others take messages away, and what is released comes back to its place. ``--mode moving``
knows no copies, and does not say so; ``--mode silent`` copies and never answers a drain.
"""

from __future__ import annotations

import argparse
import signal
import socket
from bisect import insort
from typing import Any

from proton import Message, Terminus
from proton.handlers import MessagingHandler
from proton.reactor import Container


class Broker(MessagingHandler):  # type: ignore[misc]
    """Every message is accepted; what is not settled stays taken: a test would see."""

    def __init__(self, port: int, mode: str) -> None:
        super().__init__(prefetch=100)
        self.port = port
        self.mode = mode
        self.queues: dict[str, list[tuple[int, Message]]] = {}
        self.count = 0
        # What was sent and has no outcome, by the names of link and delivery.
        self.sent: dict[tuple[str, str], tuple[int, Message]] = {}
        # How far a browser has got, by its link's name.
        self.browsers: dict[str, int] = {}

    def on_start(self, event: Any) -> None:
        event.container.listen(f"127.0.0.1:{self.port}")
        print(f"listening amqp://127.0.0.1:{self.port}\nready", flush=True)

    def on_link_opening(self, event: Any) -> None:
        link = event.link
        link.snd_settle_mode = link.remote_snd_settle_mode
        if link.is_receiver:
            link.target.address = link.remote_target.address
            return
        link.source.address = link.remote_source.address
        self.queues.setdefault(link.source.address, [])
        copies = link.remote_source.distribution_mode == Terminus.DIST_MODE_COPY
        if copies and self.mode != "moving":
            link.source.distribution_mode = Terminus.DIST_MODE_COPY
            self.browsers[link.name] = 0

    def on_message(self, event: Any) -> None:
        self.count += 1
        queue = self.queues.setdefault(event.link.target.address, [])
        queue.append((self.count, event.message))

    def on_sendable(self, event: Any) -> None:
        link = event.link
        queue = self.queues[link.source.address]
        while link.credit:
            at = self.browsers.get(link.name)
            if at is None and queue:
                first = queue.pop(0)
                self.sent[link.name, link.send(first[1]).tag] = first
            elif at is not None and at < len(queue):
                link.send(queue[at][1])
                self.browsers[link.name] = at + 1
            else:
                break
        if link.drain_mode and self.mode != "silent":
            link.drained()

    def on_released(self, event: Any) -> None:
        came = self.sent.pop((event.link.name, event.delivery.tag), None)
        if came is not None:
            insort(self.queues[event.link.source.address], came, key=lambda one: one[0])


def main() -> None:
    made = argparse.ArgumentParser()
    made.add_argument("--mode", choices=["copying", "moving", "silent"], default="copying")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    Container(Broker(port, made.parse_args().mode)).run()


if __name__ == "__main__":
    main()
