"""The producers of the records: each knows which of them the broker has acknowledged."""

from __future__ import annotations

import threading
from collections.abc import Callable
from random import Random
from typing import Final

from ferrymq import AmqpError, Message, blocking

# How many records are sent without waiting.
_TOGETHER: Final = 20
_KEYS: Final = 16
_TIMEOUT: Final = 10.0

# What is known of a record.
_SENT: Final = 0
_ACKNOWLEDGED: Final = 1


class KeyedProducer(threading.Thread):
    """Sends numbered records with keys to one broker, until it is `over`.

    A record whose outcome is lost with the connection is not sent again. `may_send` says whether
    there should be more records now. `error` is why the thread has ended, if not because it was
    told to.
    """

    def __init__(self, name: str, urls: list[str], seed: int, may_send: Callable[[], bool]) -> None:
        super().__init__(name=f"producer {name}", daemon=True)
        self.prefix = name
        self.acknowledged = 0
        self.over = threading.Event()
        self.error: BaseException | None = None
        # By the number of the record.
        self._known = bytearray()
        self._keys = bytearray()
        self._urls = urls
        self._random = Random(f"{seed} {name}")
        self._may_send = may_send

    @property
    def sent(self) -> int:
        """How many records were sent, acknowledged or not."""
        return len(self._known)

    def was_acknowledged(self, number: int) -> bool:
        """Return whether the broker has acknowledged a record."""
        return self._known[number] == _ACKNOWLEDGED

    def key_of(self, number: int) -> str:
        """Return the partition key of a record. Producers have no key in common."""
        return f"{self.prefix}-{self._keys[number]}"

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
                first = self.sent
                futures = [sender.send_nowait(self._next()) for _ in range(_TOGETHER)]
                for number, future in enumerate(futures, first):
                    future.result(_TIMEOUT)
                    self._known[number] = _ACKNOWLEDGED
                    self.acknowledged += 1

    def _next(self) -> Message:
        number = self.sent
        self._known.append(_SENT)
        self._keys.append(self._random.randrange(_KEYS))
        return Message(
            b"%s %d" % (self.prefix.encode(), number),
            durable=True,
            message_annotations={"x-opt-partition-key": self.key_of(number)},
        )
