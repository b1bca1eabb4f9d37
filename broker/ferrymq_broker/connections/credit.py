"""The credit of producers: a budget for all links, and no credit while there is an alarm.

What a node can promise is the node's to say (`Node.room`). Beyond that two things hold for the
whole broker. All links together are never promised more messages than the budget; a link that would
get nothing waits until another is gone. And while memory or disk run short nobody is promised
anything, and what was promised is taken back, as far as it has not been used: what is under way is
taken in (AMQP 1.0 §2.6.7). Consumers go on.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.event_log import log
from ferrymq_broker.slices import LINK, SlicedTask, Slices

if TYPE_CHECKING:
    from ferrymq_broker.connections.link_names import LinkHolder
    from ferrymq_broker.connections.link_ports import ProducerPort

# Of the budget that is left, a link gets at most one part in so many: the last thousand links are
# to have something as well.
_PARTS: Final = 1024


@final
class Credit:
    """The credit of one broker.

    `budget` is what all links may be promised together, in messages, 0 without a limit; `reserved`
    is what they are. `alarms` are the reasons why nobody gets credit now.
    """

    __slots__ = (
        "budget",
        "reserved",
        "alarms",
        "withheld",
        "_waiting",
        "_poor",
        "_slices",
        "_supply",
        "_relief",
    )

    def __init__(self, slices: Slices) -> None:
        self._slices = slices
        self._supply: _Supply | None = None
        self._relief: _Relief | None = None
        self.budget: i64 = 0
        self.reserved: i64 = 0
        self.alarms: set[str] = set()
        # Whether there is any alarm: a flag, for it is asked often.
        self.withheld = False
        # Producers that wait for the end of the alarms, and producers that the budget left with
        # nothing.
        self._waiting: OrderedDict[ProducerPort, None] = OrderedDict()
        self._poor: OrderedDict[ProducerPort, None] = OrderedDict()

    # -- alarms --------------------------------------------------------------------------

    def set_alarm(self, reason: str, on: bool) -> None:
        """Set or end an alarm: something runs short, or does not any more."""
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
            supply = self._supply
            if supply is None:
                supply = _Supply(self)
                self._supply = supply
            self._slices.do(supply)

    def wait(self, producer: ProducerPort) -> None:
        """Give the producer credit when there is no alarm."""
        self._waiting[producer] = None

    def supply_next(self) -> bool:
        """Give one of those that wait its credit; False if there is none left, or an alarm."""
        if self.withheld or not self._waiting:
            return False
        producer, _ = self._waiting.popitem(last=False)
        producer.supply()
        return True

    # -- the budget ----------------------------------------------------------------------

    def reserve(self, producer: ProducerPort, wanted: i64) -> i64:
        """Return how many more messages the link may be promised: `wanted`, or what the budget
        has."""
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

    def leave(self, producer: ProducerPort, reserved: i64) -> None:
        """Free what was reserved for a producer that is gone."""
        self.reserved -= reserved
        self._waiting.pop(producer, None)
        self._poor.pop(producer, None)
        if self._poor and self.reserved < self.budget:
            relief = self._relief
            if relief is None:
                relief = _Relief(self)
                self._relief = relief
            self._slices.do(relief)

    def relieve_next(self) -> bool:
        """Give one producer without anything its part of the budget; False if there is none, or
        nothing to give."""
        if not self._poor or self.reserved >= self.budget:
            return False
        poor, _ = self._poor.popitem(last=False)
        poor.supply()
        return True


@final
class _Supply(SlicedTask):
    """The end of the alarms: producers get their credit, those that have waited longest first."""

    __slots__ = ("_credit",)

    def __init__(self, credit: Credit) -> None:
        super().__init__()
        self._credit = credit

    def go_on(self, slices: Slices) -> bool:
        """Supply as many producers as the slice allows."""
        while not slices.is_spent():
            if not self._credit.supply_next():
                return True
            slices.spend(LINK)
        return False


@final
class _Relief(SlicedTask):
    """The relief of producers without credit: they get their parts of what another has left.

    That may be one message each for a thousand of them."""

    __slots__ = ("_credit",)

    def __init__(self, credit: Credit) -> None:
        super().__init__()
        self._credit = credit

    def go_on(self, slices: Slices) -> bool:
        """Supply as many producers as the slice allows."""
        while not slices.is_spent():
            if not self._credit.relieve_next():
                return True
            slices.spend(LINK)
        return False


@final
class Withdrawal(SlicedTask):
    """An alarm: the producers of all connections are to send nothing more."""

    __slots__ = ("_credit", "_holders")

    def __init__(self, credit: Credit, holders: list[LinkHolder]) -> None:
        super().__init__()
        self._credit = credit
        self._holders = holders

    def go_on(self, slices: Slices) -> bool:
        """Go on with as many connections as the slice allows, or none once the alarm is over."""
        while self._holders and self._credit.withheld:
            if slices.is_spent():
                return False
            slices.spend(LINK + LINK * self._holders.pop().withdraw_credit())
        return True
