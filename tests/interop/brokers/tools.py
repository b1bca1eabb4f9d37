"""Tools that the cases of all faces share: sending, taking, and errors that say what is wrong."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from typing import Any, Final

import ferrymq
from ferrymq import Connection, Message, blocking
from ferrymq_codec import (
    Array,
    Byte,
    Char,
    Decimal64,
    Float32,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)
from tests.interop.brokers.sites import PASSWORD, Site
from tests.support.forking import FerrymqProcess

# Seconds. A message that is there comes sooner; one that does not come in this time is not there.
PATIENCE: Final = 2.0
# Seconds that a queue is watched for one message too many.
WATCH: Final = 0.15

PRIMITIVES: Final[dict[str, Any]] = {
    "null": None,
    "true": True,
    "ubyte": UByte(200),
    "ushort": UShort(50_000),
    "uint": UInt(4_000_000_000),
    "uint, small": UInt(7),
    "ulong": ULong(2**64 - 1),
    "ulong, small": ULong(7),
    "byte": Byte(-7),
    "short": Short(-700),
    "int": Int(-70_000),
    "int, small": Int(-7),
    "long": -(2**62),
    "long, small": -7,
    "float": Float32(0.5),
    "double": 0.1,
    "decimal64": Decimal64("1.5"),
    "char": Char("ß"),
    "timestamp": Timestamp(1_700_000_000_000),
    "binary": b"\0\xff",
    "string": "žluťoučký",
    "symbol": Symbol("amqp"),
}
ARRAYS: Final[dict[str, Any]] = {
    "x-opt-int": Array("int", [1, 2]),
    "x-opt-uint": Array("uint", [1, 2]),
    "x-opt-ulong": Array("ulong", [1, 2]),
    "x-opt-long": Array("long", [1, 2]),
    "x-opt-boolean": Array("boolean", [True, False]),
    "x-opt-symbol": Array("symbol", [Symbol("a"), Symbol("b")]),
    "x-opt-string": Array("string", ["a", "b"]),
}


def texts(count: int) -> list[str]:
    """Return the bodies of as many messages."""
    return [f"message {number}" for number in range(count)]


def expect(seen: object, wanted: object, what: str) -> None:
    """Raise AssertionError that says what was seen instead."""
    assert seen == wanted, f"{what}: {seen!r} instead of {wanted!r}"


def expect_all(seen: Sequence[object], wanted: Sequence[object]) -> None:
    """Raise AssertionError unless the same messages have come in the same order."""
    lost = [body for body in wanted if body not in seen]
    assert not lost, f"{len(lost)} of {len(wanted)} messages are gone: {lost[:3]!r}"
    assert len(seen) == len(wanted), f"{len(seen)} messages instead of {len(wanted)}"
    assert list(seen) == list(wanted), f"another order: {seen[:6]!r}"


async def fill(connection: Connection, address: str, bodies: Sequence[object]) -> None:
    """Send messages with these bodies."""
    async with await connection.sender(address, timeout=PATIENCE) as sender:
        await sender.send_many([Message(body) for body in bodies], timeout=10)


async def take(site: Site, address: str, count: int, watch: float = WATCH) -> list[Any]:
    """Take up to `count` messages on a connection of its own; one more if there is one."""
    bodies: list[Any] = []
    async with (
        await ferrymq.connect(site.url(), timeout=10) as connection,
        await connection.receiver(address) as receiver,
    ):
        while True:
            wait = PATIENCE if len(bodies) < count else watch
            try:
                async with await receiver.receive(timeout=wait) as delivery:
                    bodies.append(delivery.message.body)
            except TimeoutError:
                return bodies


def put(site: Site, address: str, bodies: Sequence[object]) -> None:
    """Send messages with these bodies, without an event loop."""
    with (
        blocking.connect(site.url(), timeout=10) as connection,
        connection.sender(address) as sender,
    ):
        sender.send_many([Message(body) for body in bodies], timeout=10)


def fetch(site: Site, address: str, count: int) -> list[Any]:
    """Take up to `count` messages, and one more if there is one, without an event loop."""
    bodies: list[Any] = []
    with (
        blocking.connect(site.url(), timeout=10) as connection,
        connection.receiver(address) as receiver,
    ):
        while True:
            try:
                wait = PATIENCE if len(bodies) < count else WATCH
                with receiver.receive(timeout=wait) as delivery:
                    bodies.append(delivery.message.body)
            except TimeoutError:
                return bodies


def command(site: Site, *arguments: str, user: str | None = "alice", password: str = PASSWORD,
            url: str | None = None, status: int | None = 0) -> str:  # fmt: skip
    """Run `ferrymq` with the arguments, as the user; return what it printed, or raise what it
    complained of."""
    environment = {**os.environ, "FERRYMQ_URL": url or site.url(None), "NO_COLOR": "1"}
    for name in ("FERRYMQ_USER", "FERRYMQ_PASSWORD"):
        environment.pop(name, None)
    if user is not None and site.users:
        environment |= {"FERRYMQ_USER": user, "FERRYMQ_PASSWORD": password}
    with FerrymqProcess(
        arguments,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    ) as process:
        try:
            output, complaint = process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    if status is not None:
        assert process.returncode == status, complaint.decode().strip() or output.decode()
    return str(output.decode())


def printed(output: str) -> list[Any]:
    """Return the bodies of the messages that `ferrymq receive --json` has printed."""
    return [json.loads(line)["body"] for line in output.splitlines()]
