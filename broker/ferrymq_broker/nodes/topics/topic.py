"""The topic: a message goes to each subscription that wants it, and to nobody if there is none.

A subscription is a queue of its own, filled by the topic and emptied by its links; so a slow
subscriber has a long queue and stalls nobody, and everything a queue can do (times to live, limits,
dead letters, browsing, outcomes) a subscription can do too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.nodes.node import PERMANENT, Node, Refusal, Space
from ferrymq_broker.nodes.topics.subscription import Subscription, SubscriptionOwner
from ferrymq_broker.nodes.topics.subscription_identity import (
    SubscriptionIdentity,
    global_key,
    public_name,
)
from ferrymq_broker.nodes.topics.subscription_registry import (
    EndedSubscriptions,
    SubscriptionRegistry,
)
from ferrymq_broker.store.changes import LAST
from ferrymq_broker.store.tables import SUBSCRIPTION
from ferrymq_broker.timers import Timer
from ferrymq_broker.values.policy import QueuePolicy, TopicPolicy
from ferrymq_types.transport import Error

if TYPE_CHECKING:
    from ferrymq_broker.filters.filter import Filter
    from ferrymq_broker.nodes.link_terms import SourceTerms
    from ferrymq_broker.nodes.message import BrokerMessage


@final
class _Idle(Timer):
    """The timer that deletes a topic which nobody uses."""

    __slots__ = ("topic",)

    def __init__(self, topic: Topic) -> None:
        super().__init__()
        self.topic = topic

    def on_time(self, now: i64) -> None:
        """Delete the topic, which has not been used since."""
        self.topic.end_unused()


@final
class Topic(SubscriptionOwner):
    """A topic. Since the broker was started `published` counts messages, `refused` how often a
    subscription did not take one."""

    __slots__ = (
        "published",
        "refused",
        "_registry",
        "_expiry",
        "_by_terms",
        "_fresh",
        "_idle",
    )

    def __init__(
        self, address: str, space: Space, policy: TopicPolicy, lifetime: i64 = PERMANENT
    ) -> None:
        super().__init__(address, space, policy, lifetime)
        self.published: i64 = 0
        self.refused: i64 = 0
        self._registry = SubscriptionRegistry(self)
        self._expiry = self._registry.expiry
        # Of every attached link, visitors' too.
        self._by_terms: dict[SourceTerms, Subscription] = {}
        # Made for a link that has not been told so yet, and may still be refused.
        self._fresh: Subscription | None = None
        self._idle = _Idle(self)
        # Without any patience it goes with its last link or subscription, not before.
        if space.agenda.now > 0 and policy.auto_delete > 0:
            self._consider_idle()

    def __repr__(self) -> str:
        return f"<topic {self.address!r} {len(self._registry)}>"

    @property
    def kind(self) -> str:
        """``topic``."""
        return "topic"

    # -- messages in -----------------------------------------------------------------------

    def publish(self, message: BrokerMessage) -> Refusal | None:
        """Hand the message to every subscription that wants it; never refused.

        What one of them does not take is counted and lost for that one: the sender cannot send it
        again without sending it to the others too.
        """
        if self.deleted:
            return Refusal("amqp:not-found", f"{self.address!r} has been deleted")
        self.published += 1
        self.refused += self._registry.fanout.publish(message)
        return None

    def keeps(self, message: BrokerMessage) -> bool:
        """Return whether subscriptions that are stored keep it."""
        return self.store_id != 0 and (message.durable or self.policy.subscription.persist)

    def reserve(self, message: BrokerMessage, holders: list[Node]) -> Refusal | None:
        """Promise to take the message in: nothing is ever refused."""
        if self.deleted:
            return Refusal("amqp:not-found", f"{self.address!r} has been deleted")
        return None

    def room(self) -> i64:
        """Return what the fullest of the subscriptions has left that make senders wait."""
        return self._registry.room()

    def regain_room(self) -> None:
        """Tell the subscriptions: producers that send to them by other ways may wait there."""
        super().regain_room()
        self._registry.regain_room()

    def target(self, part: str) -> Node:
        """Return the topic itself. Raises `BrokerError` for a subscription, which takes nothing
        else."""
        if part:
            raise BrokerError(
                "amqp:not-allowed",
                f"{part[:200]!r} is at most a subscription of {self.address!r}: send to the topic",
            )
        return self

    # -- links that receive ----------------------------------------------------------------

    def open_source(self, terms: SourceTerms) -> Node:
        """Return the queue of the subscription that the terms are for, which is made if need be.

        Raises `BrokerError`: `amqp:not-implemented` for distribution-mode move, for a topic gives a
        message to all; `amqp:precondition-failed` if others share the subscription and want other
        messages, or if it is shared and this link does not share, or the other way round;
        `amqp:resource-locked` if somebody consumes under its address;
        `amqp:resource-limit-exceeded` if there are too many.
        """
        terms.filters.decline_position()
        if terms.part:
            return self._visit(terms)
        mode = terms.distribution_mode
        if mode is not None and mode != "copy":
            raise BrokerError(
                "amqp:not-implemented",
                f"distribution mode {mode!r} on a topic, which gives a message to all: copy",
            )
        identity = SubscriptionIdentity(terms)
        subscription = self._find(identity, terms)
        made = subscription is None
        if subscription is None:
            subscription = self._make(identity, terms)
        else:
            self._registry.refilter(subscription, terms.filters.predicate)
        try:
            queue = self._attach(subscription, terms)
        except BrokerError:
            if made:
                self._registry.drop(subscription, "no link could be attached to it")
            raise
        self._fresh = subscription if made else None
        terms.made = made
        self._expiry.attached(subscription)
        subscription.links[terms] = None
        if not subscription.declared:
            subscription.expiry_policy = terms.expiry_policy if identity.kept else "link-detach"
            subscription.timeout = terms.timeout if identity.kept else 0
            self._registry.records.put(subscription)
        terms.granted_mode = "copy"
        terms.granted_expiry_policy = subscription.expiry_policy
        terms.granted_timeout = subscription.timeout
        granted: list[str] = []
        if identity.shared:
            granted.append("shared")
            if identity.everywhere:
                granted.append("global")
        terms.granted_capabilities = granted
        return queue

    def close_source(self, terms: SourceTerms, closed: bool) -> None:
        """Act upon the end of a subscriber's link: the last one ends the subscription, unless it
        is kept.

        A kept one goes if that link was closed; detached or lost, its expiry policy decides.
        """
        subscription = self._by_terms.pop(terms, None)
        if subscription is None:
            return
        queue = subscription.queue
        queue.close_source(terms, closed)
        queue.link_closed()
        if terms.part:
            subscription.visitors -= 1
            return
        del subscription.links[terms]
        if subscription.links or subscription.declared or subscription.gone:
            return
        if closed or not subscription.kept or subscription is self._fresh:
            self._registry.drop(subscription, "its last link is gone")
        else:
            self._expiry.detached(subscription, terms)

    def _find(self, identity: SubscriptionIdentity, terms: SourceTerms) -> Subscription | None:
        """Return the subscription that is meant, if it exists and can be used as it is."""
        kept = identity.kept
        if not kept and not identity.shared:
            return None
        durables = self.space.durables
        key = identity.key
        if kept:
            elsewhere = durables.get(key)
            if isinstance(elsewhere, Topic) and elsewhere is not self:
                # A client has one subscription of a name: to another topic, it is another one.
                elsewhere.give_way(key)
        subscription = self._registry.find(key, kept)
        if subscription is None:
            return None
        name = subscription.name
        if subscription.shared != identity.shared:
            kind = "shared" if subscription.shared else "not shared"
            raise BrokerError(
                "amqp:precondition-failed", f"the subscription {name[:200]!r} is {kind}"
            )
        if not subscription.agrees(terms.filters):
            if subscription.declared or (subscription.shared and subscription.links):
                raise BrokerError(
                    "amqp:precondition-failed",
                    f"the subscription {name[:200]!r} has another filter",
                )
            self._registry.drop(subscription, "it was replaced by one with another filter")
            return None
        if not subscription.shared and subscription.visitors > 0:
            raise BrokerError(
                "amqp:resource-locked",
                f"somebody consumes from {subscription.address[:300]!r} by its address",
            )
        return subscription

    def give_way(self, key: str) -> None:
        """End a durable subscription that its owner wants to be one to another topic.

        Raises `BrokerError` if others still share it.
        """
        subscription = self._registry.find(key, True)
        if subscription is None:
            return
        if subscription.declared or (subscription.shared and subscription.links):
            raise BrokerError(
                "amqp:precondition-failed",
                f"{subscription.name[:200]!r} is a subscription of {self.address[:200]!r}",
            )
        self._registry.drop(subscription, "it was replaced by one to another topic")

    def _make(self, identity: SubscriptionIdentity, terms: SourceTerms) -> Subscription:
        if not identity.label and identity.shared:
            raise BrokerError("amqp:invalid-field", "a shared subscription without a name")
        name = identity.name(terms)
        party = terms.party
        subscription = self._registry.add(
            name,
            identity.key if identity.kept or identity.shared else "",
            identity.kept,
            terms.filters.predicate,
            self.policy.subscription,
        )
        subscription.filters = dict(terms.filters.granted)
        subscription.shared = identity.shared
        subscription.everywhere = identity.everywhere
        subscription.container = "" if identity.everywhere else party.container_id
        subscription.user = None if identity.everywhere else party.user
        subscription.link_name = identity.label
        return subscription

    def _attach(self, subscription: Subscription, terms: SourceTerms) -> Node:
        """Ask the queue of the subscription about the link, which is no browser."""
        mode = terms.distribution_mode
        part = terms.part
        terms.distribution_mode = None
        terms.part = ""
        # What is in the queue has passed the filter.
        predicate = terms.filters.predicate
        terms.filters.predicate = None
        try:
            queue = subscription.queue.open_source(terms)
        except BrokerError:
            terms.filters.predicate = predicate
            raise
        finally:
            terms.distribution_mode = mode
            terms.part = part
        subscription.queue.link_opened()
        self._by_terms[terms] = subscription
        return queue

    def _visit(self, terms: SourceTerms) -> Node:
        """Attach to a subscription by its address: to browse it, or to help empty it."""
        subscription = self.subscription(terms.part)
        if terms.distribution_mode != "copy" and not subscription.shared and subscription.links:
            raise BrokerError(
                "amqp:resource-locked",
                f"the subscription {terms.part[:200]!r} is in use; it can be browsed (copy)",
            )
        part = terms.part
        terms.part = ""
        try:
            queue = subscription.queue.open_source(terms)
        finally:
            terms.part = part
        if not terms.browses:
            subscription.visitors += 1
        subscription.queue.link_opened()
        self._by_terms[terms] = subscription
        return queue

    # -- subscriptions -----------------------------------------------------------------------

    def subscriptions(self) -> list[Subscription]:
        """Return all there are in the order in which they were made."""
        return self._registry.all()

    def ended(self, named: bool) -> EndedSubscriptions | None:
        """Return the totals of ended subscriptions, `named` or not; None if there were none."""
        return self._registry.ended.get(named)

    def subscription(self, name: str) -> Subscription:
        """Return the one of that name. Raises `BrokerError` if there is none."""
        subscription = self._registry.get(name)
        if subscription is None:
            raise BrokerError(
                "amqp:not-found", f"{self.address!r} has no subscription {name[:200]!r}"
            )
        return subscription

    def durable(self, key: str) -> Subscription | None:
        """Return the one that is kept and has this identity."""
        return self._registry.find(key, True)

    def declare_subscription(
        self,
        name: str,
        filter: Filter | None = None,
        policy: QueuePolicy | None = None,
        filters: dict[str, object] | None = None,
    ) -> Subscription:
        """Return a subscription that stays until it is deleted, and belongs to nobody.

        `filters` are what a link would ask for to have the `filter`: what is stored of it.

        Links consume from it by its address, or with the capabilities shared and global under its
        name. Raises `BrokerError` if there is one of that name, or no room.
        """
        key = global_key(name)
        if not name or key in self.space.durables:
            raise BrokerError("amqp:not-allowed", f"there is a subscription {name[:200]!r}")
        subscription = self._registry.add(
            public_name(name), key, True, filter, policy or self.policy.subscription
        )
        subscription.declared = True
        subscription.shared = True
        subscription.everywhere = True
        subscription.link_name = name
        subscription.expiry_policy = "never"
        subscription.filters = {} if filters is None else filters
        self._registry.records.put(subscription)
        return subscription

    def restore_subscription(
        self,
        id: i64,
        name: str,
        key: str,
        filter: Filter | None,
        policy: QueuePolicy,
        fields: dict[str, object],
    ) -> Subscription:
        """Return a subscription that was stored; `id` is that of its queue. The caller fills in
        what else is known of it, and calls `restored`."""
        subscription = self._registry.insert(name, key, True, filter, policy)
        subscription.queue.restore(id, fields)
        subscription.store_id = id
        return subscription

    def restored(self, subscription: Subscription) -> None:
        """End the restore of a subscription."""
        self._expiry.restore(subscription)

    def change_subscription(self, subscription: Subscription, policy: QueuePolicy) -> None:
        """Change the policy of the queue of a subscription."""
        subscription.queue.change_policy(policy)
        self._registry.records.put(subscription)

    def delete_subscription(self, name: str) -> None:
        """End its links, drop its messages. Raises `BrokerError` if there is none."""
        self._registry.drop(self.subscription(name), "it has been deleted")

    def expire(self, subscription: Subscription) -> None:
        """See `SubscriptionOwner.expire`."""
        self._registry.drop(subscription, "it has expired")

    # -- the topic's own life ----------------------------------------------------------------

    def node_gone(self, node: Node) -> None:
        """Drop a subscription whose queue has come to its end by itself."""
        prefix = len(self.address) + 2
        subscription = self._registry.get(node.address[prefix:])
        if subscription is not None and subscription.queue is node:
            self._registry.drop(subscription, "it was not used")

    def party_gone(self, number: i64) -> None:
        """Start the time of subscriptions that waited for the end of this session or connection."""
        self._expiry.party_gone(number)

    def change_policy(self, policy: TopicPolicy) -> None:
        """Follow another policy from now on; subscriptions that are there stay as they are."""
        self.policy = policy
        self.space.timers.cancel(self._idle)
        if policy.auto_delete > 0:
            self._consider_idle()

    def link_opened(self) -> None:
        """Count a link: the topic is in use."""
        super().link_opened()
        self._fresh = None
        self.space.timers.cancel(self._idle)

    def link_closed(self) -> None:
        """Count a link that is gone: perhaps the topic is not in use any more."""
        super().link_closed()
        self._consider_idle()

    def subscription_added(self) -> None:
        """Note that the topic is in use."""
        self.space.timers.cancel(self._idle)

    def subscription_dropped(self) -> None:
        """Find out whether the topic goes: it may be unused, or was there for the messages that
        have gone."""
        self._consider_idle()
        if self.lifetime != PERMANENT:
            self.touch()

    def dispatch(self) -> None:
        """Offer room to producers; go, if there is nothing left to live for."""
        super().dispatch()
        if self.lifetime != PERMANENT:
            self.reconsider_life()

    def _consider_idle(self) -> None:
        after = self.policy.auto_delete
        if after >= 0 and self.links == 0 and len(self._registry) == 0 and not self.deleted:
            self.space.timers.set(self._idle, self.agenda.now + after)

    def delete(self, error: Error) -> None:
        """End every link with `error`, drop every subscription."""
        self.deleted = True
        if self.store_id != 0:
            self.agenda.changes.drop_range(SUBSCRIPTION, self.store_id, 0, LAST)
        for subscription in self._registry.all():
            subscription.store_id = 0
        self.space.timers.cancel(self._idle)
        super().delete(error)

    def parts(self) -> list[Node]:
        """Return the queues of its subscriptions."""
        return [subscription.queue for subscription in self._registry.all()]

    def message_count(self) -> i64:
        """Count the messages of all subscriptions; a message counts in each that has it."""
        count: i64 = 0
        for subscription in self._registry.all():
            count += subscription.queue.message_count()
        return count

    def figures(self) -> dict[str, int]:
        """Return what it counts; its messages are counted by its subscriptions."""
        return {
            "subscriptions": len(self._registry),
            "producers": len(self.producers),
            "published": int(self.published),
            "refused": int(self.refused),
        }

    def describe(self) -> dict[str, object]:
        """Return its figures. Those of a subscription are its own."""
        policy = self.policy
        return {
            "name": self.address,
            "type": self.kind,
            "max-subscriptions": policy.max_subscriptions,
            "auto-delete": policy.auto_delete,
            "subscriptions": len(self._registry),
            "filters": self._registry.fanout.filters(),
            "links": self.links,
            "producers": len(self.producers),
            "messages": self.message_count(),
            "published": self.published,
            "refused": self.refused,
        }
