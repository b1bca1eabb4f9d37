"""A worker is killed under load, again and again: what was acknowledged is there, and the other
worker goes on."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

import pytest

from ferrymq import Message, blocking
from ferrymq.errors import AmqpError
from tests.broker.workers.several import TENANT, WorkerBroker
from tests.support.lanes import amount

pytestmark = pytest.mark.crash

CONFIG = """
[store]
path = "{path}"
[[queue]]
name = "orders"
{tenant}
[[virtual-host.queue]]
name = "orders"
"""


class Producer(threading.Thread):
    """A client that sends numbered durable messages one after the other, and connects again."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self._stop_asked = threading.Event()
        self.sent = 0
        self.acknowledged: list[int] = []
        # How often it has connected.
        self.connected = 0

    def run(self) -> None:
        """Send until told to stop."""
        while not self._stop_asked.is_set():
            try:
                with blocking.connect(self._url) as connection:
                    self.connected += 1
                    sender = connection.sender("orders")
                    while not self._stop_asked.is_set():
                        number = self.sent
                        self.sent += 1
                        sender.send(Message(body=b"%d" % number, durable=True), timeout=30)
                        self.acknowledged.append(number)
            except (AmqpError, OSError, TimeoutError):
                continue

    def wait_for_more(self, count: int = 20) -> None:
        """Wait until so many more messages are acknowledged."""
        least = len(self.acknowledged) + count
        deadline = time.monotonic() + 60
        while len(self.acknowledged) < least:
            assert time.monotonic() < deadline, "nothing is acknowledged any more"
            time.sleep(0.002)

    def end(self) -> None:
        """Tell it to stop, and wait."""
        self._stop_asked.set()
        self.join()


def drain(url: str) -> list[int]:
    """The numbers of all messages that are there."""
    found: list[int] = []
    with blocking.connect(url) as connection:
        receiver = connection.receiver("orders")
        while True:
            try:
                delivery = receiver.receive(timeout=1)
            except TimeoutError:
                return found
            body = delivery.message.body
            assert isinstance(body, bytes)
            found.append(int(body))
            delivery.accept()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("victim", [0, 1])
def test_a_worker_is_killed_under_load(tmp_path: Path, victim: int) -> None:
    dice = random.Random(victim)
    config = CONFIG.format(path=tmp_path / "data", tenant=TENANT)
    with WorkerBroker(config) as broker:
        producers = [Producer(broker.hostname_url(worker)) for worker in (0, 1)]
        for each in producers:
            each.start()
        try:
            for _ in range(amount(2, 12)):
                for each in producers:
                    each.wait_for_more(dice.randrange(5, 40))
                broker.kill_worker(victim)
                # The other one goes on while this one is away.
                producers[1 - victim].wait_for_more()
                broker.wait_for_worker(victim)
                producers[victim].wait_for_more(1)
        finally:
            for each in producers:
                each.end()
        # The clients of the other worker have noticed nothing.
        assert producers[1 - victim].connected == 1
        assert producers[victim].connected > 1
        for worker, each in enumerate(producers):
            found = drain(broker.hostname_url(worker))
            assert set(each.acknowledged) <= set(found), "an acknowledged message is gone"
            # Each was sent once, so it cannot be there twice, and the order is that of sending.
            assert found == sorted(set(found))
            assert len(found) <= each.sent
