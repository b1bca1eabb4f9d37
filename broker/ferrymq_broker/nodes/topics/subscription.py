"""One subscription of a topic: a queue, what gets into it, and how long it lasts."""

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
    from ferrymq_broker.values.policy import TopicPolicy


@final
class Subscription:
    """A subscription collects in `queue` what passes `filter`; `name` tells it from others of
    its topic.

    - `kept`: it outlives its links, as `expiry_policy` and `timeout` (seconds) of the last one say
      (AMQP 1.0 §3.5.6); `declared`: until somebody deletes it.
    - `shared`: several links compete; `everywhere`: links of whatever container.
    - `key`: what it is found by, empty if only its link knows it. `container`, `user`, `link_name`:
      who it was made for.
    - `links`: the subscribers' links, `visitors`: how many others consume under its address.
    - `filters`: the described filters it was asked for and granted, by name.
    - `awaits`: the number of the session or the connection whose end lets the time run, or 0.
    - `refused`: messages its queue did not take.
    - `store_id`: that of its queue, 0 if it is not stored.
    - `idle_since`: when its time began to run, in milliseconds since the epoch, 0 if it does not.
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
    )

    def __init__(self, name: str, key: str, queue: Queue) -> None:
        self.name = name
        self.key = key
        self.queue = queue
        self.filter: Filter | None = None
        self.filters: dict[str, object] = {}
        self.kept = False
        self.declared = False
        self.shared = False
        self.everywhere = False
        self.container = ""
        self.user: str | None = None
        self.link_name = ""
        self.links: dict[SourceTerms, None] = {}
        self.visitors: i64 = 0
        self.expiry_policy = "link-detach"
        self.timeout: i64 = 0
        self.awaits: i64 = 0
        self.refused: i64 = 0
        self.gone = False
        # Where it is in its group of the fan-out.
        self.place: i64 = 0
        self.store_id: i64 = 0
        self.idle_since: i64 = 0

    def __repr__(self) -> str:
        return f"<subscription {self.queue.address!r}>"

    @property
    def address(self) -> str:
        """What links and management reach it by, ``TOPIC::NAME``."""
        return self.queue.address

    @property
    def named(self) -> bool:
        """Whether somebody has named the subscription: its name is not a random one."""
        return self.kept or self.shared

    def agrees(self, filters: FilterSet) -> bool:
        """Return whether a link with these filters wants the same messages.

        Filters that are meant relative to their connection differ for each; for a subscription
        that is one client's own they are the same if they were asked for in the same words.
        """
        mine = self.filter
        theirs = filters.predicate
        if mine is None or theirs is None:
            return mine is theirs
        return mine.key == theirs.key or (not self.shared and self.filters == filters.granted)

    def describe(self) -> dict[str, object]:
        """Return its settings and figures, with those of its queue."""
        answer = dict(self.queue.describe())
        filter = self.filter
        answer.update(
            {
                "name": self.name,
                "type": "subscription",
                "address": self.address,
                "durable": self.kept,
                "declared": self.declared,
                "shared": self.shared,
                "global": self.everywhere,
                "filter": "" if filter is None else filter.key,
                "container": self.container,
                "user": "" if self.user is None else self.user,
                "link-name": self.link_name,
                "links": len(self.links),
                "expiry-policy": self.expiry_policy,
                "timeout": self.timeout,
                "refused": self.refused,
            }
        )
        return answer


class SubscriptionOwner(Node):
    """A topic, as the parts that keep its subscriptions know it."""

    __slots__ = ("policy",)

    def __init__(
        self, address: str, space: Space, policy: TopicPolicy, lifetime: i64 = PERMANENT
    ) -> None:
        super().__init__(address, space, lifetime)
        self.policy = policy

    def subscription_added(self) -> None:
        """Take notice of a new subscription: the topic is in use."""

    def subscription_dropped(self) -> None:
        """Take notice of the end of a subscription: perhaps the topic is not in use any more."""

    def expire(self, subscription: Subscription) -> None:
        """End a subscription whose time is over."""
