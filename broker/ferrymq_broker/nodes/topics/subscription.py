"""A subscription of a topic: its queue, its filter and its lifetime."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from ferrymq_broker.nodes.link_terms import SourceTerms
from ferrymq_broker.nodes.node import PERMANENT, Node
from ferrymq_broker.nodes.queues.queue import Queue

if TYPE_CHECKING:
    from ferrymq_broker.filters.filter import Filter
    from ferrymq_broker.filters.filter_set import FilterSet
    from ferrymq_broker.nodes.node import Space
    from ferrymq_broker.nodes.topics.rules import RuleSet
    from ferrymq_broker.values.policy import TopicPolicy


@final
class Subscription:
    """A subscription: `queue` collects the messages that pass `filter`; `name` is unique in the
    topic.

    - `kept`: the subscription outlives its links, as `expiry_policy` and `timeout` (seconds) of the
      last link say (AMQP 1.0 §3.5.6); `declared`: it stays until it is deleted.
    - `shared`: several links share its messages; `everywhere`: these may be links of any container.
    - `key`: its identity, empty if no other link can find it. `container`, `user`, `link_name`: the
      link for which it was created.
    - `links`: the subscribers' links, `visitors`: how many others consume under its address.
    - `filters`: the requested and granted described filters, by name.
    - `awaits`: the number of the session or connection whose end starts the expiry time, or 0.
    - `refused`: the number of messages that its queue refused.
    - `store_id`: the id of its queue in the store, 0 if it is not stored.
    - `rules`: its named rules; None if it has never had one, and gets all that pass `filter`.
    - `rule_number`: the number of the last rule in the store.
    - `idle_since`: when the expiry time began, in milliseconds since the epoch, 0 if it has not.
    """

    __slots__ = (
        "name",
        "key",
        "queue",
        "filter",
        "filters",
        "kept",
        "declared",
        "shared",
        "everywhere",
        "container",
        "user",
        "link_name",
        "links",
        "visitors",
        "expiry_policy",
        "timeout",
        "awaits",
        "refused",
        "gone",
        "place",
        "store_id",
        "idle_since",
        "rules",
        "rule_number",
    )

    def __init__(self, name: str, key: str, queue: Queue) -> None:
        self.name: str = name
        self.key: str = key
        self.queue: Queue = queue
        self.filter: Filter | None = None
        self.filters: dict[str, object] = {}
        self.kept: bool = False
        self.declared: bool = False
        self.shared: bool = False
        self.everywhere: bool = False
        self.container: str = ""
        self.user: str | None = None
        self.link_name: str = ""
        self.links: dict[SourceTerms, None] = {}
        self.visitors: i64 = 0
        self.expiry_policy: str = "link-detach"
        self.timeout: i64 = 0
        self.awaits: i64 = 0
        self.refused: i64 = 0
        self.gone: bool = False
        # The index in its group of the fan-out.
        self.place: i64 = 0
        self.store_id: i64 = 0
        self.idle_since: i64 = 0
        self.rules: RuleSet | None = None
        self.rule_number: i64 = 0

    def __repr__(self) -> str:
        return f"<subscription {self.queue.address!r}>"

    @property
    def address(self) -> str:
        """The address for links and management, ``TOPIC::NAME``."""
        return self.queue.address

    @property
    def named(self) -> bool:
        """Whether a client has named the subscription; otherwise its name is random."""
        return self.kept or self.shared

    def agrees(self, filters: FilterSet) -> bool:
        """Return whether a link with these filters wants the same messages.

        A filter that refers to its connection differs for each connection. For a subscription of
        one client such filters are equal if the requests are equal.
        """
        mine = self.filter
        theirs = filters.predicate
        if mine is None or theirs is None:
            return mine is theirs
        return mine.key == theirs.key or (not self.shared and self.filters == filters.granted)

    def describe(self) -> dict[str, object]:
        """Return its settings and figures, with those of its queue."""
        answer = dict(self.queue.describe())
        answer.update({"name": self.name, "type": "subscription", "address": self.address})
        answer.update(self.terms())
        answer["refused"] = self.refused
        return answer

    def terms(self) -> dict[str, object]:
        """Return what it is, by public names: whose it is, how long it lasts, what it wants."""
        filter = self.filter
        rules = self.rules
        return {
            "durable": self.kept,
            "declared": self.declared,
            "shared": self.shared,
            "global": self.everywhere,
            "filter": "" if filter is None else filter.key,
            "rules": None if rules is None else len(rules),
            "container": self.container,
            "user": "" if self.user is None else self.user,
            "link-name": self.link_name,
            "links": len(self.links),
            "expiry-policy": self.expiry_policy,
            "timeout": self.timeout,
        }


class SubscriptionOwner(Node):
    """The interface of a topic, for the parts that keep its subscriptions."""

    __slots__ = ("policy",)

    def __init__(
        self, address: str, space: Space, policy: TopicPolicy, lifetime: i64 = PERMANENT
    ) -> None:
        super().__init__(address, space, lifetime)
        self.policy: TopicPolicy = policy

    def subscription_added(self) -> None:
        """Take notice of a new subscription: the topic is in use."""

    def subscription_dropped(self) -> None:
        """Note the end of a subscription; the topic may be unused now."""

    def expire(self, subscription: Subscription) -> None:
        """End a subscription that has expired."""
