"""Workers on the queue of parcels. Messages that they cannot process are rejected or fail, and
become dead letters with a reason."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import ferrymq
from ferrymq.aio.delivery import Delivery
from pyspark_ferrymq.traffic.message_faults import judge

# One in this many valid messages fails at its first delivery.
_UNLUCKY: Final = 50
_TOGETHER: Final = 200


@dataclass(slots=True)
class Shift:
    """The work done: processed messages, failed deliveries, rejected messages by condition."""

    done: int = 0
    failed: int = 0
    rejected: Counter[str] = field(default_factory=Counter)

    def as_json(self) -> dict[str, object]:
        """Return the counts in the form that is printed."""
        return {
            "done": self.done,
            "failed": self.failed,
            "rejected": dict(sorted(self.rejected.items())),
        }


async def work(
    connection: ferrymq.Connection,
    address: str,
    *,
    workers: int = 2,
    idle: float | None = 1.0,
    progress: Callable[[int], None] | None = None,
) -> Shift:
    """Process messages until none has come for `idle` seconds (None: never end), and return counts.

    Malformed messages are rejected with a condition and a description. Deliveries of messages that
    a worker does not understand fail, until the queue's delivery-limit.
    """
    shift = Shift()

    async def one() -> None:
        async with connection.receiver(address, credit=_TOGETHER) as receiver:
            while True:
                try:
                    deliveries = await receiver.receive_many(_TOGETHER, timeout=idle)
                except TimeoutError:
                    return
                await asyncio.gather(*[_deal_with(delivery, shift) for delivery in deliveries])
                if progress is not None:
                    progress(len(deliveries))

    async with asyncio.TaskGroup() as group:
        for _ in range(workers):
            group.create_task(one())
    return shift


async def _deal_with(delivery: Delivery, shift: Shift) -> None:
    message = delivery.message
    fault = judge(message)
    if fault is not None and fault.condition is not None:
        await delivery.reject(fault.condition, fault.description)
        shift.rejected[fault.condition] += 1
    elif fault is not None or (_unlucky(message) and message.delivery_count == 0):
        await delivery.modify(delivery_failed=True)
        shift.failed += 1
    else:
        await delivery.accept()
        shift.done += 1


def _unlucky(message: ferrymq.Message) -> bool:
    number = str(message.message_id).rpartition("-")[2]
    return number.isdigit() and int(number) % _UNLUCKY == 0
