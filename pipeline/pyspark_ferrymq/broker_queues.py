"""The queues of a ferrymq broker, and the leases that a query has of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from pyspark_ferrymq.broker_requests import BrokerRefusalError, BrokerRequests
from pyspark_ferrymq.errors import AmqpSourceError

if TYPE_CHECKING:
    from pyspark_ferrymq.options import BrokerOptions

_QUEUE: Final = "queue"


@dataclass(frozen=True, slots=True)
class QueueBacklog:
    """The messages that wait for a query in a queue: `available` ones, and those `leased` for it
    already, by the numbers of the leases."""

    available: int
    leased: Mapping[int, int]


class BrokerQueues:
    """Leases of queues, over one connection that is opened when needed.

    All methods raise as `BrokerRequests.ask` does.
    """

    def __init__(self, settings: BrokerOptions) -> None:
        self._requests = BrokerRequests(settings)

    def look(self, queue: str, holder: str) -> QueueBacklog:
        """Return what waits for a holder, with LIST-LEASES."""
        answer = self._ask("LIST-LEASES", queue, {"holder": holder})
        return QueueBacklog(
            int(answer["available"]),
            {int(one["number"]): int(one["messages"]) for one in _maps(answer)},
        )

    def lease(
        self,
        queue: str,
        holder: str,
        number: int,
        messages: int,
        size: int | None,
        duration: int,
    ) -> int:
        """Lease messages, at most so many and of at most `size` bytes, for `duration` ms, with
        LEASE; return how many there are. The same number gives the same messages."""
        arguments: dict[str, object] = {
            "holder": holder,
            "number": number,
            "messages": messages,
            "duration": duration,
        }
        if size is not None:
            arguments["bytes"] = size
        return int(self._ask("LEASE", queue, arguments)["messages"])

    def renew(self, queue: str, holder: str, duration: int) -> set[int]:
        """Renew the leases of a holder for `duration` ms, with RENEW-LEASES.

        Returns their numbers.
        """
        arguments = {"holder": holder, "duration": duration}
        try:
            answer = self._ask("RENEW-LEASES", queue, arguments)
        except BrokerRefusalError as error:
            if error.status != HTTPStatus.GONE:
                raise
            return set()
        return {int(one["number"]) for one in _maps(answer)}

    def settle(self, queue: str, holder: str, until: int) -> set[int]:
        """Remove the messages of the leases up to a number, with SETTLE-LEASES; return the numbers
        of those that there were."""
        answer = self._ask("SETTLE-LEASES", queue, {"holder": holder, "until": until})
        return set(map(int, answer["numbers"]))

    def close(self) -> None:
        """Close the connection, if one is open."""
        self._requests.close()

    def _ask(self, operation: str, queue: str, arguments: Mapping[str, object]) -> dict[str, Any]:
        return self._requests.ask(operation, _QUEUE, queue, arguments)


def _maps(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    found = answer.get("leases")
    if not isinstance(found, list):
        raise AmqpSourceError(f"the broker's answer has no leases: {answer!r}"[:300])
    return found
