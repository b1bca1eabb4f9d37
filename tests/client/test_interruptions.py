"""Ctrl-C in the blocking client, at every line of a call: nothing is lost, nothing stays open."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from ferrymq import Message, blocking
from tests.raw.fixtures import address, broker
from tests.raw.process import Broker

__all__ = ["address", "broker"]

pytestmark = [
    pytest.mark.timeout(120),
    # An interruption may come before the opening has begun.
    pytest.mark.filterwarnings("ignore:.*was never awaited:RuntimeWarning"),
]

_BLOCKING = str(Path(blocking.__file__).parent)
_TRANSACTIONS = 3


@pytest.fixture(scope="module")
def config() -> str:
    return f"""
[limits]
transactions = {_TRANSACTIONS}
[[stream]]
name = "clicks"
"""


@pytest.fixture
def connection(broker: Broker) -> Iterator[blocking.Connection]:
    with blocking.connect(broker.url) as connected:
        yield connected


class Interruption:
    """Raises KeyboardInterrupt at one line of the client that this thread comes to.

    With `late`, the loop's thread has done before all that it had to do.
    """

    def __init__(self, line: int, loop: asyncio.AbstractEventLoop, late: bool) -> None:
        self.line = line
        self.struck = False
        self._loop = loop
        self._late = late

    def trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(_BLOCKING):
            return None
        if event == "line":
            self.line -= 1
            if self.line == 0:
                self.struck = True
                if self._late:
                    self.catch_up()
                raise KeyboardInterrupt
        return self.trace

    def catch_up(self) -> None:
        async def turns() -> None:
            for _ in range(20):
                await asyncio.sleep(0.0005)

        asyncio.run_coroutine_threadsafe(turns(), self._loop).result(20)

    @contextmanager
    def __call__(self) -> Iterator[None]:
        before = sys.gettrace()
        sys.settrace(self.trace)
        try:
            yield
        except KeyboardInterrupt:
            assert self.struck
        finally:
            sys.settrace(before)


def at_every_line(
    connection: blocking.Connection, late: bool, call: Callable[[], object]
) -> Iterator[bool]:
    """Make the call again and again, interrupted one line later each time; whether it was."""
    line = 0
    struck = True
    while struck:
        line += 1
        interruption = Interruption(line, connection._portal._loop, late)
        with interruption():
            call()
        struck = interruption.struck
        yield struck
    assert line > 5


late = pytest.mark.parametrize("late", [False, True], ids=["at once", "after the answer"])


@late
@pytest.mark.parametrize("many", [False, True], ids=["receive", "receive_many"])
@pytest.mark.parametrize("credit", [1000, 1], ids=["arrived", "waited for"])
def test_messages_that_nobody_got_come_next(
    connection: blocking.Connection, address: str, late: bool, many: bool, credit: int
) -> None:
    connection.sender(address).send_many([Message(number) for number in range(600)], timeout=20)
    receiver = connection.receiver(address, credit=credit)
    bodies: list[object] = []
    got: list[blocking.Delivery] = []

    def take() -> None:
        if many:
            got.extend(receiver.receive_many(3, timeout=20))
        else:
            got.append(receiver.receive(timeout=20))

    for _ in at_every_line(connection, late, take):
        # What comes after an interruption is what would have come without it.
        if not got or credit > 1:
            take()
        for delivery in got:
            bodies.append(delivery.message.body)
            delivery.accept()
        got.clear()
    assert bodies == list(range(len(bodies)))


@late
def test_outcomes_are_given_or_can_be_given_again(
    connection: blocking.Connection, address: str, late: bool
) -> None:
    connection.sender(address).send_many([Message(number) for number in range(100)], timeout=20)
    deliveries: list[blocking.Delivery] = []
    with connection.receiver(address, credit=1000) as receiver:

        def accept() -> None:
            deliveries.append(receiver.receive(timeout=20))
            deliveries[-1].accept()

        for _ in at_every_line(connection, late, accept):
            if deliveries and not deliveries[-1].settled:
                with deliveries[-1]:
                    pass
        taken = {delivery.message.body for delivery in deliveries}
        assert all(delivery.settled for delivery in deliveries)
    with connection.receiver(address) as other:
        left = [other.receive(timeout=20).message.body for _ in range(100 - len(taken))]
    assert taken.isdisjoint(left)


@late
def test_chunks_that_nobody_got_come_next(connection: blocking.Connection, late: bool) -> None:
    with connection.sender("clicks") as sender:
        sender.send_many([Message(number) for number in range(300)], timeout=20)
    reader = connection.chunk_reader("clicks::0", chunk_records=2)
    for _ in at_every_line(connection, late, lambda: reader.receive(timeout=20)):
        chunk = reader.receive(timeout=20)
        assert chunk is not None and reader.next_offset == chunk.next
    assert reader.skipped == 0


@late
def test_transactions_that_nobody_got_are_rolled_back(
    connection: blocking.Connection, late: bool
) -> None:
    got: list[blocking.Transaction] = []
    for _ in at_every_line(connection, late, lambda: got.append(connection.transaction())):
        while got:
            got.pop().rollback()
    for txn in [connection.transaction(timeout=20) for _ in range(_TRANSACTIONS)]:
        txn.rollback()


@late
def test_receivers_that_nobody_got_keep_no_messages(
    connection: blocking.Connection, address: str, late: bool
) -> None:
    connection.sender(address).send_many([Message(number) for number in range(5)], timeout=20)

    got: list[blocking.Receiver] = []
    for _ in at_every_line(connection, late, lambda: got.append(connection.receiver(address))):
        while got:
            got.pop().close()
    with connection.receiver(address) as receiver:
        assert sorted(receiver.receive(timeout=20).message.body for _ in range(5)) == [
            0, 1, 2, 3, 4
        ]  # fmt: skip
