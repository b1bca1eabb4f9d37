"""The named rules of a subscription: which messages it gets, and in which form.

A message that matches any rule without an action comes once, as it is. Each matching rule with an
action adds a copy of its own, which its action has changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.filters.correlation import Correlation, CorrelationIndex
from ferrymq_broker.filters.rule import TRUE, SubscriptionRule
from ferrymq_broker.nodes.message_view import view_of

if TYPE_CHECKING:
    from ferrymq_broker.filters.actions import Action
    from ferrymq_broker.nodes.message import BrokerMessage

# The most characters and bytes of all rules of one subscription together: their filters are asked
# for each message.
MAX_SIZE: Final = 2 * 1024 * 1024


@final
class RuleSet:
    """The rules of one subscription, by name.

    `cost` is the cost of asking all filters once, in simple comparisons; `size` is the size of all
    descriptions.
    """

    __slots__ = (
        "cost",
        "size",
        "_by_name",
        "_always",
        "_asked",
        "_index",
        "_acting",
        "_acting_index",
    )

    def __init__(self) -> None:
        self.cost: i64 = 0
        self.size: i64 = 0
        self._by_name: dict[str, SubscriptionRule] = {}
        # The rules without an action: how many always match, the filters that are asked one after
        # the other, and those that are looked up.
        self._always: i64 = 0
        self._asked: dict[str, SubscriptionRule] = {}
        self._index = CorrelationIndex()
        # The same for rules with an action.
        self._acting: dict[str, SubscriptionRule] = {}
        self._acting_index = CorrelationIndex()

    def __len__(self) -> int:
        return len(self._by_name)

    def all(self) -> list[SubscriptionRule]:
        """Return all rules in the order in which they were added."""
        return list(self._by_name.values())

    def get(self, name: str) -> SubscriptionRule | None:
        """Return the rule of a name."""
        return self._by_name.get(name)

    def expect_room(self, rule: SubscriptionRule, limit: i64) -> None:
        """Raise `BrokerError` if the rule would be one too many. A `limit` of 0 is none."""
        if limit != 0 and len(self._by_name) >= limit:
            raise BrokerError(
                "amqp:resource-limit-exceeded",
                f"the subscription has {limit} rules already, which is the limit (max-rules); "
                "remove some first",
            )
        if self.size + rule.size > MAX_SIZE:
            raise BrokerError(
                "amqp:resource-limit-exceeded",
                f"the rules of the subscription would have {self.size + rule.size} characters "
                f"together; at most {MAX_SIZE} are allowed",
            )

    def add(self, rule: SubscriptionRule) -> None:
        """Add a rule whose name is new."""
        name = rule.name
        self._by_name[name] = rule
        self.size += rule.size
        filter = rule.filter
        if isinstance(filter, Correlation):
            index = self._index if rule.action is None else self._acting_index
            index.add(filter, name)
        elif rule.action is not None:
            self._acting[name] = rule
            self.cost += filter.cost
        elif rule.kind == TRUE:
            self._always += 1
        else:
            self._asked[name] = rule
            self.cost += filter.cost

    def remove(self, rule: SubscriptionRule) -> None:
        """Remove a rule."""
        name = rule.name
        del self._by_name[name]
        self.size -= rule.size
        filter = rule.filter
        if isinstance(filter, Correlation):
            index = self._index if rule.action is None else self._acting_index
            index.remove(filter, name)
        elif rule.action is not None:
            del self._acting[name]
            self.cost -= filter.cost
        elif rule.kind == TRUE:
            self._always -= 1
        else:
            del self._asked[name]
            self.cost -= filter.cost

    def work(self) -> i64:
        """Return the cost of one message, in simple comparisons."""
        return self.cost + self._index.cost + self._acting_index.cost

    def passes(self, message: BrokerMessage) -> bool:
        """Return whether the message matches a rule without an action."""
        if self._always > 0:
            return True
        if self._index.cost > 0 and self._index.matches(view_of(message)):
            return True
        for rule in self._asked.values():  # noqa: SIM110 — a generator costs more
            if rule.filter.matches(message):
                return True
        return False

    def actions(self, message: BrokerMessage) -> list[Action]:
        """Return the actions of all matching rules that have one."""
        actions: list[Action] = []
        for rule in self._acting.values():
            action = rule.action
            if action is not None and rule.filter.matches(message):
                actions.append(action)
        if self._acting_index.cost > 0:
            for name in self._acting_index.find(view_of(message)):
                action = self._by_name[name].action
                if action is not None:
                    actions.append(action)
        return actions
