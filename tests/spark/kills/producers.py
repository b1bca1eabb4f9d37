"""The producers of the records that the query copies."""

from __future__ import annotations

import threading
from collections.abc import Callable
from random import Random
from typing import Final

from ferrymq import AmqpError, Message, blocking
from tests.spark.kills.copy_ledger import SentRecords

# How many records are sent without waiting.
_TOGETHER: Final = 20
_KEYS: Final = 16
_TIMEOUT: Final = 10.0


class KeyedProducer(threading.Thread):
    """Sends numbered records with keys to one broker, until it is `over`.

    A record whose outcome is lost with the connection is not sent again. `may_send` says whether
    there should be more records now. `error` is why the thread has ended, if not because it was
    told to.
    """

    def __init__(self, name: str, urls: list[str], seed: int, may_send: Callable[[], bool]) -> None:
        super().__init__(name=f"producer {name}", daemon=True)
        self.records = SentRecords(name)
        self.over = threading.Event()
        self.error: BaseException | None = None
        self._urls = urls
        self._random = Random(f"{seed} {name}")
        self._may_send = may_send

    def run(self) -> None:
        """Send, over one connection after the other."""
        try:
            while not self.over.is_set():
                try:
                    self._send_over_connection()
                except (AmqpError, OSError):
                    self.over.wait(0.1)
        except BaseException as error:
            self.error = error

    def _send_over_connection(self) -> None:
        with (
            blocking.connect(self._urls, reconnect=False, timeout=_TIMEOUT) as connection,
            connection.sender("orders") as sender,
        ):
            while not self.over.is_set():
                if not self._may_send():
                    self.over.wait(0.02)
                    continue
                first = len(self.records)
                futures = [sender.send_nowait(self._next()) for _ in range(_TOGETHER)]
                lost: BaseException | None = None
                for number, future in enumerate(futures, first):
                    error = future.exception(_TIMEOUT)
                    if error is None:
                        self.records.acknowledge(number)
                    lost = lost or error
                if lost is not None:
                    raise lost

    def _next(self) -> Message:
        number = self.records.add(self._random.randrange(_KEYS))
        return Message(
            self.records.body_of(number),
            durable=True,
            message_annotations={"x-opt-partition-key": self.records.key_of(number)},
        )
