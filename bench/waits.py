"""`python -m bench.waits`: how long messages wait in a queue whose producer is faster than its
consumer.

The producer, a process of its own, sends as many messages as it has credit for, with at most
`IN_FLIGHT` without an outcome. The time at which it sends a message is in the message. The consumer
asks for as many messages in each millisecond as make the wanted rate, and accepts each. The command
prints JSON: messages per second, and the 50th and 99th percentile of the times from sending to
arrival, in ms.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import sys
import time
from typing import Final

from bench.client import Peer
from bench.encoding import data_head
from bench.parts.latency import percentile
from ferrymq.engine.events import DeliveryReceived
from ferrymq_types.messaging import Accepted, Source

IN_FLIGHT: Final = 500
SIZE: Final = 100
WARM_UP: Final = 1.0
"""Seconds before the measurement, in which the room of the queue adapts."""

_TIME: Final = 8
_BURST: Final = 64
_TICK: Final = 0.001


def produce(port: int, address: str, seconds: float) -> None:
    """Send messages with their times for so many seconds."""
    peer = Peer(port, "producer")
    link = peer.sender(peer.session(), address)
    unsettled = link.session.outgoing.unsettled
    head, tail = data_head(SIZE), bytes(SIZE - _TIME)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        peer.until(lambda: link.credit > 0 and len(unsettled) < IN_FLIGHT)
        for _ in range(min(link.credit, IN_FLIGHT - len(unsettled), _BURST)):
            link.send(head + time.monotonic_ns().to_bytes(_TIME, "big") + tail)
        peer.flush()
    peer.close()


class Consumer(Peer):
    """A client that notes how long each message was on its way, in ms."""

    def __init__(self, port: int) -> None:
        super().__init__(port, "consumer")
        self.times: list[float] = []

    def handle(self) -> None:
        """Accept all messages that have arrived."""
        now = time.monotonic_ns()
        skipped = len(data_head(SIZE))
        for event in self.engine.take_events():
            if isinstance(event, DeliveryReceived):
                sent = int.from_bytes(event.delivery.payload[skipped : skipped + _TIME], "big")
                self.times.append((now - sent) / 1e6)
                event.delivery.settle(Accepted())


def consume(port: int, address: str, rate: int, seconds: float) -> dict[str, float]:
    """Take at most `rate` messages a second for so many seconds; return the result."""
    consumer = Consumer(port)
    link = consumer.session().attach_receiver("waits", source=Source(address=address))
    consumer.until(lambda: link.usable)
    began = tick = time.monotonic()
    asked, first, measured = 0, -1, began
    while (now := time.monotonic()) < began + WARM_UP + seconds:
        if first < 0 and now >= began + WARM_UP:
            first, measured = len(consumer.times), now
        if now >= tick:
            # Credit that a tick has left over is lost, as the time of an idle consumer is.
            asked = max(1, int((now - tick + _TICK) * rate))
            link.set_credit(asked)
            tick = now + _TICK
        consumer.flush()
        if select.select([consumer.socket], [], [], max(0.0, tick - time.monotonic()))[0]:
            consumer.read()
    took = time.monotonic() - measured
    times = consumer.times[first:]
    consumer.close()
    if not times:
        raise RuntimeError("no message arrived")
    return {
        "rate": len(times) / took,
        "p50": percentile(times, 0.5),
        "p99": percentile(times, 0.99),
    }


def main(argv: list[str] | None = None) -> int:
    """Run the command and return the exit status."""
    made = argparse.ArgumentParser(prog="python -m bench.waits", description=__doc__)
    made.add_argument("--port", type=int, required=True)
    made.add_argument("--address", required=True, help="the queue")
    made.add_argument("--rate", type=int, required=True, help="messages per second of the consumer")
    made.add_argument("--seconds", type=float, required=True)
    arguments = made.parse_args(argv)
    child = os.fork()
    if child == 0:
        try:
            produce(arguments.port, arguments.address, 2 * (WARM_UP + arguments.seconds))
        finally:
            os._exit(1)
    try:
        result = consume(arguments.port, arguments.address, arguments.rate, arguments.seconds)
    finally:
        os.kill(child, signal.SIGTERM)
        os.waitpid(child, 0)
    json.dump(result, sys.stdout)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
