"""Workers on the queue of parcels. What they cannot deal with they reject, or fail with, and so it
comes to the dead letters with a reason."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import ferrymq
from ferrymq.aio.delivery import Delivery
from pyspark_ferrymq.traffic.message_faults import judge

# Of fine messages, one in so many fails the first time: the van was full.
_UNLUCKY: Final = 50
_TOGETHER: Final = 200


@dataclass(slots=True)
class Shift:
    """What workers have done: messages they were done with, rejected by condition, failed with."""

    done: int = 0
    failed: int = 0
    rejected: Counter[str] = field(default_factory=Counter)

    def as_json(self) -> dict[str, object]:
        """As it is printed."""
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
    """Take messages until none has come for `idle` seconds (None: for ever); what was done.

    What is malformed is rejected with a condition and a description. What a worker does not
    understand has failed, time and again, until the queue's delivery-limit.
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
