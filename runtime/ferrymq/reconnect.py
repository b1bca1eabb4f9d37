"""Policy for reconnecting after a connection is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field

from ferrymq.durations import Duration, check_duration


def _random() -> float:
    # Importing it takes longer than this module.
    import random

    return random.random()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconnectPolicy:
    """Exponential back-off with jitter.

    The pause before attempt n is a random part, at least half, of ``initial * factor ** n``
    seconds, and never more than `maximum`. After `attempts` failures in a row (None: never) the
    connection is given up. With several URLs, an attempt tries each of them.

    A reconnect restores the connection, its sessions and its links under the same names, with their
    credit. Calls that wait for a message or for credit continue to wait.

    A session that the peer ends with an error is restored in the same way, without the link that
    was the reason. One that ends again within ten seconds goes on with the pauses and attempts.

    Deliveries in flight are resumed on links to and from durable termini (`durable=True`,
    `exactly_once=True`; AMQP 1.0 §2.6.13). On other links they are not. A delivery received before
    the loss can no longer be settled; the node delivers it again. A send without an outcome is in
    doubt: the peer may or may not have the message.

    With `resend`, each message arrives at least once: a message in doubt is sent again, a request
    without a reply too, and the outcome of a delivery received before the loss is dropped. Lines in
    the log count both. Without `resend`, and in any case in a transaction, the send and the outcome
    fail with `ConnectionClosed`.

    `random` returns a number from 0 to 1, `sleep` waits seconds: tests replace them.
    """

    initial: Duration = 0.1
    factor: float = 2.0
    maximum: Duration = 30.0
    attempts: int | None = None
    resend: bool = True
    random: Callable[[], float] = field(default=_random, repr=False)
    sleep: Callable[[float], Awaitable[None]] = field(default=asyncio.sleep, repr=False)

    def pauses(self) -> Iterator[float]:
        """Yield the pauses before the attempts, in seconds; end when it is time to give up."""
        maximum = check_duration(self.maximum, "maximum")
        bound = min(check_duration(self.initial, "initial"), maximum)
        attempt = 0
        while self.attempts is None or attempt < self.attempts:
            yield bound * (1 + self.random()) / 2
            bound = min(bound * self.factor, maximum)
            attempt += 1
