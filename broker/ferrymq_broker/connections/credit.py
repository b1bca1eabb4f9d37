"""The credit of producers: a budget for all links, and no credit while there is an alarm.

A node decides how much credit it can promise (`Node.room`). Beyond that there are two rules for the
whole broker. All links together are promised at most the messages of the budget; a link that would
get nothing waits until another link is gone. While memory or disk is short, no link is promised
anything, and unused credit is taken back; messages already on their way are accepted (AMQP 1.0
§2.6.7). Consumers are served meanwhile.
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
    from ferrymq_broker.nodes.node import Producer

# A link gets at most one part in so many of the remaining budget, so that the last thousand links
# get something, too.
_PARTS: Final = 1024


@final
class Credit:
    """The credit of one broker.

    `budget` is how many messages all links may be promised together, 0 without a limit; `reserved`
    is how many they are promised. `alarms` are the reasons why no link gets credit now.
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
        # Whether there is any alarm: a flag, because it is read often.
        self.withheld: bool = False
        # Producers that wait for the end of the alarms, and producers for which the budget had
        # nothing.
        self._waiting: OrderedDict[Producer, None] = OrderedDict()
        self._poor: OrderedDict[Producer, None] = OrderedDict()

    # -- alarms --------------------------------------------------------------------------

    def set_alarm(self, reason: str, on: bool) -> None:
        """Set or clear an alarm: something is short, or is not short any more."""
        if on == (reason in self.alarms):
            return
        if on:
            self.alarms.add(reason)
            log.warning("alarm: producers get no credit", alarm=reason)
        else:
            self.alarms.discard(reason)
            log.warning("alarm has ended", alarm=reason, others=sorted(self.alarms))
        self.withheld = len(self.alarms) > 0
        if not self.withheld:
            supply = self._supply
            if supply is None:
                supply = _Supply(self)
                self._supply = supply
            self._slices.do(supply)

    def wait(self, producer: Producer) -> None:
        """Give the producer credit once there is no alarm."""
        self._waiting[producer] = None

    def supply_next(self) -> bool:
        """Give one waiting producer its credit; return false if none waits, or if there is an
        alarm."""
        if self.withheld or not self._waiting:
            return False
        producer, _ = self._waiting.popitem(last=False)
        producer.supply()
        return True

    # -- the budget ----------------------------------------------------------------------

    def reserve(self, producer: ProducerPort, wanted: i64) -> i64:
        """Return how many more messages the link may be promised: `wanted`, or what is left in the
        budget."""
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

    def leave(self, producer: Producer, reserved: i64) -> None:
        """Release the reservation of a producer that is gone."""
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
        """Give one producer without credit its part of the budget; return false if none waits, or
        if nothing is left."""
        if not self._poor or self.reserved >= self.budget:
            return False
        poor, _ = self._poor.popitem(last=False)
        poor.supply()
        return True


@final
class _Supply(SlicedTask):
    """The task at the end of the alarms: producers get their credit, the longest waiting first."""

    __slots__ = ("_credit",)

    def __init__(self, credit: Credit) -> None:
        super().__init__()
        self._credit = credit

    def go_on(self, slices: Slices) -> bool:
        """Supply producers, as far as the slice allows."""
        while not slices.is_spent():
            if not self._credit.supply_next():
                return True
            slices.spend(LINK)
        return False


@final
class _Relief(SlicedTask):
    """The task that gives producers without credit their part of what another producer has left.

    A thousand of them may get one message each.
    """

    __slots__ = ("_credit",)

    def __init__(self, credit: Credit) -> None:
        super().__init__()
        self._credit = credit

    def go_on(self, slices: Slices) -> bool:
        """Supply producers, as far as the slice allows."""
        while not slices.is_spent():
            if not self._credit.relieve_next():
                return True
            slices.spend(LINK)
        return False


@final
class Withdrawal(SlicedTask):
    """The task of an alarm: it takes back the credit of the producers of all connections."""

    __slots__ = ("_credit", "_holders")

    def __init__(self, credit: Credit, holders: list[LinkHolder]) -> None:
        super().__init__()
        self._credit = credit
        self._holders = holders

    def go_on(self, slices: Slices) -> bool:
        """Continue with connections, as far as the slice allows, or stop if the alarm is over."""
        while self._holders and self._credit.withheld:
            if slices.is_spent():
                return False
            slices.spend(LINK + LINK * self._holders.pop().withdraw_credit())
        return True
