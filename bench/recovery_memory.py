"""Memory of recovery, compared with the broker's memory before it was killed:
`python -m bench.recovery_memory [--count N] [--pure] [shape ...]`.

Each shape has its own store, with at most `PAGE_OUT` bytes of messages in memory. The store is
filled, the broker gets SIGKILL, and the peak memory of the next broker until it is ready is
measured. A demand is missed if it is more than 1.1 times the peak memory of the first broker.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import ferrymq
from bench.client import drain, fill
from bench.encoding import DURABLE_HEADER, data_section
from bench.machine import PEAK, memory_of
from bench.process import Server, durable_broker
from bench.tree import Trees

COUNT: Final = 150_000
SIZE: Final = 3000
LARGE: Final = 10 << 20
PAGE_OUT: Final = 32 << 20
DEMAND: Final = 1.1

CONFIG: Final = """
[store]
page-out = {page_out}
segment-bytes = "{segment}"

[[topic]]
name = "news"

[[stream]]
name = "log"

[[exchange]]
name = "all"
routing = "fanout"

[[queue]]
name = "a"

[[queue]]
name = "b"

[[queue]]
name = "c"

[[exchange.binding]]
to = "a"

[[exchange.binding]]
to = "b"

[[exchange.binding]]
to = "c"
"""


def encoded(size: int) -> bytes:
    """Return a durable message with `size` bytes of data (AMQP 1.0 §3.2)."""
    return DURABLE_HEADER + data_section(bytes(size))


def queue(port: int, count: int) -> None:
    """Fill one queue."""
    fill(port, "a", encoded(SIZE), count)


def topic(port: int, count: int) -> None:
    """Fill a topic with two subscriptions."""
    asyncio.run(_subscribe(port))
    fill(port, "news", encoded(SIZE), count)


def exchange(port: int, count: int) -> None:
    """Fill an exchange with three queues."""
    fill(port, "all", encoded(SIZE), count)


def stream(port: int, count: int) -> None:
    """Fill a stream."""
    fill(port, "log", encoded(SIZE), count)


def large(port: int, count: int) -> None:
    """Fill a queue with messages of 10 MiB, with the same number of bytes in all."""
    fill(port, "a", encoded(LARGE), max(1, count * SIZE // LARGE))


def drained(port: int, count: int) -> None:
    """Fill a queue with small messages, and drain it."""
    fill(port, "a", encoded(100), count)
    drain(port, "a", count)


def transactions(port: int, count: int) -> None:
    """Commit transactions of 1 000 messages for a queue and a topic; leave the last one open."""
    asyncio.run(_subscribe(port))
    asyncio.run(_transact(port, count))


async def _subscribe(port: int) -> None:
    async with (
        ferrymq.connect(f"amqp://127.0.0.1:{port}") as connection,
        connection.management() as management,
    ):
        for name in ("one", "two"):
            await management.request("CREATE", "subscription", f"news::{name}", {})


async def _transact(port: int, count: int) -> None:
    body = bytes(SIZE)
    async with ferrymq.connect(f"amqp://127.0.0.1:{port}") as connection:
        senders = [await connection.sender(node) for node in ("a", "news")]
        for left in range(count, -1000, -1000):
            txn = await connection.transaction()
            message = ferrymq.Message(body, durable=True)
            await asyncio.gather(
                *(txn.send(senders[number % 2], message) for number in range(1000))
            )
            if left > 0:
                await txn.commit()


class Shape(NamedTuple):
    """The way a store is filled, and the size of its journal's segments."""

    fill: Callable[[int, int], None]
    segment: str = "32MiB"


SHAPES: Final = {
    "queue": Shape(queue),
    "topic": Shape(topic),
    "exchange": Shape(exchange),
    "stream": Shape(stream),
    "large": Shape(large),
    "drained": Shape(drained),
    "transactions": Shape(transactions),
    "journal": Shape(queue, "1GiB"),
    "journal of small changes": Shape(drained, "1GiB"),
}


def measure(trees: Trees, shape: Shape, count: int, folder: Path) -> tuple[int, int, float]:
    """Return the peak bytes while running and while recovering, and the seconds of recovery."""
    config = folder / "broker.toml"
    config.write_text(CONFIG.format(page_out=PAGE_OUT, segment=shape.segment), "utf-8")
    with durable_broker(trees, folder / "data", {}, config) as server:
        shape.fill(server.port, count)
        running = _peak(server)
        server.kill()
    with durable_broker(trees, folder / "data", {}, config) as server:
        return running, _peak(server), server.cpu_seconds() or 0.0


def _peak(server: Server) -> int:
    return memory_of(server.pid, PEAK) or 0


def main() -> int:
    """Measure all or some shapes; return 1 if one misses its demand."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shapes", nargs="*", choices=[*SHAPES, []], metavar="shape")
    parser.add_argument("--count", type=int, default=COUNT, help="messages")
    parser.add_argument("--pure", action="store_true", help="measure the interpreted broker")
    options = parser.parse_args()
    trees = Trees(pure=options.pure, loops=False)
    missed = 0
    for name in options.shapes or SHAPES:
        with tempfile.TemporaryDirectory() as folder:
            running, recovering, seconds = measure(trees, SHAPES[name], options.count, Path(folder))
        late = recovering > DEMAND * running
        missed += late
        sys.stdout.write(
            f"{name:26} running {running >> 20:5} MiB, recovering {recovering >> 20:5} MiB "
            f"({recovering / running:.2f}), {seconds:.1f} s{'  MISSED' if late else ''}\n"
        )
        sys.stdout.flush()
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
