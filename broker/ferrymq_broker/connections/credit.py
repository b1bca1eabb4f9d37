"""How much credit producers may have: a budget for all links, and none while there is an alarm.

What a node can promise is the node's to say (`Node.room`). Beyond that two things hold for the
whole broker. All links together are never promised more messages than the budget; a link that would
get nothing waits until another is gone. And while memory or disk run short nobody is promised
anything, and what was promised is taken back, as far as it has not been used: what is under way is
taken in (AMQP 1.0 §2.6.7). Consumers go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.journal import log

if TYPE_CHECKING:
    from ferrymq_broker.connections.incoming import IncomingEndpoint

# Of the budget that is left, a link gets at most one part in so many: the last thousand links are
# to have something as well.
_PARTS: Final = 1024


@final
class Credit:
    """The credit of one broker.

    `budget` is what all links may be promised together, in messages, 0 without a limit; `reserved`
    is what they are. `alarms` are the reasons why nobody gets credit now.
    """

    __slots__ = ("budget", "reserved", "alarms", "withheld", "_waiting", "_poor")

    def __init__(self) -> None:
        self.budget: i64 = 0
        self.reserved: i64 = 0
        self.alarms: set[str] = set()
        # Whether there is any alarm: a flag, for it is asked often.
        self.withheld = False
        # Producers that wait for the end of the alarms, and those the budget left with nothing.
        self._waiting: dict[IncomingEndpoint, None] = {}
        self._poor: dict[IncomingEndpoint, None] = {}

    # -- alarms --------------------------------------------------------------------------

    def set_alarm(self, reason: str, on: bool) -> None:
        """Something runs short, or does not any more."""
        if on == (reason in self.alarms):
            return
        if on:
            self.alarms.add(reason)
            log.warning("alarm: producers get no credit", alarm=reason)
        else:
            self.alarms.discard(reason)
            log.warning("alarm is over", alarm=reason, others=sorted(self.alarms))
        self.withheld = len(self.alarms) > 0
        if not self.withheld:
            waiting = list(self._waiting)
            self._waiting.clear()
            for producer in waiting:
                producer.supply()

    def wait(self, producer: IncomingEndpoint) -> None:
        """The producer wants credit; it gets some when there is no alarm."""
        self._waiting[producer] = None

    # -- the budget ----------------------------------------------------------------------

    def reserve(self, producer: IncomingEndpoint, wanted: i64) -> i64:
        """How many more messages the link may be promised: `wanted`, or what the budget has."""
        if self.budget == 0:
            self.reserved += wanted
            return wanted
        left = self.budget - self.reserved
        if left <= 0:
            if producer.window == 0:
                self._poor[producer] = None
            return 0
        share = (left + _PARTS - 1) // _PARTS
        if share < wanted:
            wanted = share
        self.reserved += wanted
        return wanted

    def leave(self, producer: IncomingEndpoint, reserved: i64) -> None:
        """The producer is gone, and with it what was reserved for it."""
        self.reserved -= reserved
        self._waiting.pop(producer, None)
        self._poor.pop(producer, None)
        while self._poor and self.reserved < self.budget:
            poor = next(iter(self._poor))
            del self._poor[poor]
            poor.supply()
