"""The topic: a message goes to each subscription that wants it, or to none.

A subscription has a queue of its own, which the topic fills and its links empty. So a slow
subscriber has a long queue and delays no other, and a subscription has all features of a queue
(times to live, limits, dead letters, browsing, outcomes).

One module because it is one class: what links, management and the store ask of a topic; its parts
are modules of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.nodes.disabling import evict_producers, refusal_of_disabled, sending_disabled
from ferrymq_broker.nodes.node import PERMANENT, Node, Refusal, Space
from ferrymq_broker.nodes.queues.lifecycle.dead_letters import is_own_dead_letter
from ferrymq_broker.nodes.queues.lifecycle.deduplication import DuplicateDetection, identity_of
from ferrymq_broker.nodes.queues.persistence import QueueRecords
from ferrymq_broker.nodes.topics.rules import RuleSet
from ferrymq_broker.nodes.topics.subscription import Subscription, SubscriptionOwner
from ferrymq_broker.nodes.topics.subscription_identity import (
    SubscriptionIdentity,
    global_key,
    public_name,
    topic_key,
)
from ferrymq_broker.nodes.topics.subscription_registry import (
    EndedSubscriptions,
    SubscriptionRegistry,
)
from ferrymq_broker.store.changes import LAST
from ferrymq_broker.store.tables import DUPLICATE, SUBSCRIPTION
from ferrymq_broker.timers import Timer
from ferrymq_broker.values.names import PART
from ferrymq_broker.values.policy import QueuePolicy, TopicPolicy
from ferrymq_broker.values.rights import CREATE
from ferrymq_types.transport import Error

if TYPE_CHECKING:
    from ferrymq_broker.filters.filter import Filter
    from ferrymq_broker.filters.rule import SubscriptionRule
    from ferrymq_broker.nodes.link_terms import SourceTerms, TargetTerms
    from ferrymq_broker.nodes.message import BrokerMessage


@final
class _Idle(Timer):
    """The timer that deletes an unused topic."""

    __slots__ = ("topic",)

    def __init__(self, topic: Topic) -> None:
        super().__init__()
        self.topic = topic

    def on_time(self, now: i64) -> None:
        """Delete the topic, which has not been used since the timer was set."""
        self.topic.end_unused()


@final
class Topic(SubscriptionOwner):
    """A topic. Since the broker was started, `published` counts messages, `refused` counts how
    often a subscription did not take one, and `duplicated` counts dropped duplicates."""

    __slots__ = (
        "published",
        "refused",
        "duplicated",
        "_duplicates",
        "_guarded",
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
        self.duplicated: i64 = 0
        self._duplicates: DuplicateDetection | None = None
        # Whether each message has to be looked at.
        self._guarded = False
        self._registry = SubscriptionRegistry(self)
        self._expiry = self._registry.expiry
        # The subscription of every attached link, also of links to the subscription's own address.
        self._by_terms: dict[SourceTerms, Subscription] = {}
        # A subscription created for a link whose attach is not answered yet and may still be
        # refused.
        self._fresh: Subscription | None = None
        self._idle = _Idle(self)
        self._follow(policy)
        # With an `auto_delete` time of 0, the topic is deleted with its last link or subscription,
        # not before.
        if space.agenda.now > 0 and policy.auto_delete > 0:
            self._consider_idle()

    def __repr__(self) -> str:
        return f"<topic {self.address!r} {len(self._registry)}>"

    def locks_messages(self) -> bool:
        """See `Node.locks_messages`: what new subscriptions do."""
        return self.policy.subscription.lock_duration > 0 or self.policy.subscription.sessions

    @property
    def kind(self) -> str:
        """``topic``."""
        return "topic"

    # -- messages in -----------------------------------------------------------------------

    def publish(self, message: BrokerMessage) -> Refusal | None:
        """Publish the message to every subscription that wants it; refuse it only if the topic is
        disabled.

        If a subscription does not take the message, that is counted, and the message is lost for
        this subscription: the sender could not repeat it without repeating it to the others.
        """
        if self.deleted:
            return Refusal("amqp:not-found", f"{self.address!r} has been deleted")
        if self._guarded:
            if self.policy.send_disabled and message.origin != 0:
                return refusal_of_disabled(self)
            duplicates = self._duplicates
            if duplicates is not None and self._is_duplicate(duplicates, message):
                return None
        self.published += 1
        self.refused += self._registry.fanout.publish(message)
        return None

    def _is_duplicate(self, duplicates: DuplicateDetection, message: BrokerMessage) -> bool:
        """Return whether the message came before; remember it otherwise."""
        identity = identity_of(message)
        if identity is None or is_own_dead_letter(message):
            return False
        agenda = self.agenda
        if not duplicates.knows(identity, agenda.now):
            duplicates.remember(identity, agenda, self.store_id != 0 and message.durable)
            return False
        self.duplicated += 1
        # The first message may not be on disk yet, and this is another connection.
        agenda.changes.claim()
        return True

    def _follow(self, policy: TopicPolicy) -> None:
        """Detect duplicates and refuse messages as the policy says."""
        duplicates = self._duplicates
        if policy.duplicate_window <= 0:
            if duplicates is not None:
                duplicates.close()
            self._duplicates = None
        elif duplicates is None:
            self._duplicates = DuplicateDetection(
                QueueRecords(self, False), policy.duplicate_window, policy.duplicate_limit
            )
        else:
            duplicates.window = policy.duplicate_window
            duplicates.limit = policy.duplicate_limit
        self._guarded = policy.duplicate_window > 0 or policy.send_disabled

    def restore_identity(self, number: i64, time: i64, identity: object) -> bool:
        """Restore the identity of a message that came on the date `time`; return false if it is
        not needed."""
        if self._duplicates is None:
            return False
        self._duplicates.restore(number, self.agenda.moment_of(time), identity)
        return True

    def keeps(self, message: BrokerMessage) -> bool:
        """Return whether a stored subscription keeps the message."""
        return self.store_id != 0 and (message.durable or self.policy.subscription.persist)

    def reserve(self, message: BrokerMessage, holders: list[Node]) -> Refusal | None:
        """Promise to take the message, unless the topic is disabled."""
        if self.deleted:
            return Refusal("amqp:not-found", f"{self.address!r} has been deleted")
        if self.policy.send_disabled and message.origin != 0:
            return refusal_of_disabled(self)
        return None

    def room(self) -> i64:
        """Return the room of the fullest subscription that makes senders wait."""
        return self._registry.room()

    def regain_room(self) -> None:
        """Tell the subscriptions, where producers that publish to them in other ways may wait."""
        super().regain_room()
        self._registry.regain_room()

    def target(self, part: str) -> Node:
        """Return the topic itself. Raises `BrokerError` for a subscription, to which nothing else
        can publish."""
        if part:
            raise BrokerError(
                "amqp:not-allowed",
                f"{part[:200]!r} can only be a subscription of {self.address!r}; send to the "
                "topic itself",
            )
        return self

    def open_target(self, terms: TargetTerms) -> Node:
        """Accept a producer. Raises `BrokerError` if senders are not allowed."""
        node = self.target(terms.part)
        if self.policy.send_disabled:
            raise sending_disabled(self)
        return node

    # -- links that receive ----------------------------------------------------------------

    def open_source(self, terms: SourceTerms) -> Node:
        """Return the queue of the subscription for these terms; create it if necessary.

        Raises `BrokerError`: `amqp:not-implemented` for distribution-mode move, because a topic
        gives a message to all; `amqp:precondition-failed` if other links share the subscription
        with another filter, or if either the subscription or the link is shared and the other is
        not; `amqp:resource-locked` if a link consumes from its address;
        `amqp:resource-limit-exceeded` if there are too many.
        """
        terms.filters.decline_position()
        if terms.part:
            return self._visit(terms)
        mode = terms.distribution_mode
        if mode is not None and mode != "copy":
            raise BrokerError(
                "amqp:not-implemented",
                f"distribution mode {mode!r} is not possible: a topic gives each message to "
                "all subscriptions; use copy",
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
                self._registry.drop(subscription, "the link could not be attached")
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
        """Act upon the end of a subscriber's link: the last one ends the subscription, unless it is
        kept.

        A kept subscription ends if that link was closed; if it was detached or lost, the expiry
        policy decides.
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
        """Return the subscription of this identity, if it exists and can be used as it is."""
        kept = identity.kept
        if not kept and not identity.shared:
            return None
        durables = self.space.durables
        key = identity.key
        if kept:
            elsewhere = durables.get(key)
            if isinstance(elsewhere, Topic) and elsewhere is not self:
                # A client has one subscription of a name: attached to another topic, it is another
                # one.
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
                    f"the subscription {name[:200]!r} is in use with another filter",
                )
            self._registry.drop(subscription, "it was replaced by one with another filter")
            return None
        if not subscription.shared and subscription.visitors > 0:
            raise BrokerError(
                "amqp:resource-locked",
                f"a link consumes from the address {subscription.address[:300]!r} of the "
                "subscription",
            )
        return subscription

    def give_way(self, key: str) -> None:
        """End a durable subscription whose owner now wants it on another topic.

        Raises `BrokerError` if other links still share it.
        """
        subscription = self._registry.find(key, True)
        if subscription is None:
            return
        if subscription.declared or (subscription.shared and subscription.links):
            raise BrokerError(
                "amqp:precondition-failed",
                f"{subscription.name[:200]!r} is already a subscription of {self.address[:200]!r}",
            )
        self._registry.drop(subscription, "it was replaced by one of another topic")

    def _make(self, identity: SubscriptionIdentity, terms: SourceTerms) -> Subscription:
        if not identity.label and identity.shared:
            raise BrokerError(
                "amqp:invalid-field", "the shared subscription has no name; give the link a name"
            )
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
        """Grant the link's terms by the queue of the subscription; the link is not a browser."""
        mode = terms.distribution_mode
        part = terms.part
        terms.distribution_mode = None
        terms.part = ""
        # Messages in the queue have passed the filter already.
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
        """Attach a link to the address of a subscription: to browse it, or to help consume it."""
        self._subscribe_by_address(terms)
        subscription = self.subscription(terms.part)
        if terms.distribution_mode != "copy" and not subscription.shared and subscription.links:
            raise BrokerError(
                "amqp:resource-locked",
                f"the subscription {terms.part[:200]!r} is in use; it can only be browsed "
                "(distribution-mode copy)",
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

    def _subscribe_by_address(self, terms: SourceTerms) -> None:
        """Declare the subscription that a link names by its address, if it does not exist and the
        policy allows that. Raises `BrokerError` if the client may not create it."""
        name = terms.part
        if not self.policy.auto_subscribe or self._registry.get(name) is not None:
            return
        owned = any(name.endswith(f"/{one}") for one in self.policy.subscription.sub_queues)
        if not owned and public_name(name) == name:
            terms.party.access.require(CREATE, f"{self.address}{PART}{name}")
            self.declare_subscription(name)

    # -- subscriptions -----------------------------------------------------------------------

    def subscriptions(self) -> list[Subscription]:
        """Return all subscriptions in the order of creation."""
        return self._registry.all()

    def ended(self, named: bool) -> EndedSubscriptions | None:
        """Return the totals of ended subscriptions, `named` or not; None if there were none."""
        return self._registry.ended.get(named)

    def subscription(self, name: str) -> Subscription:
        """Return the subscription of a name. Raises `BrokerError` if there is none."""
        subscription = self._registry.get(name)
        if subscription is None:
            raise BrokerError(
                "amqp:not-found", f"{self.address!r} has no subscription {name[:200]!r}"
            )
        return subscription

    def declared_subscription(self, name: str) -> Subscription | None:
        """Return the global subscription of this name, declared or made by links; None if there
        is none."""
        return self._registry.get(public_name(name))

    def durable(self, key: str) -> Subscription | None:
        """Return the kept subscription with this identity; None if there is none."""
        return self._registry.find(key, True)

    def declare_subscription(
        self,
        name: str,
        filter: Filter | None = None,
        policy: QueuePolicy | None = None,
        filters: dict[str, object] | None = None,
    ) -> Subscription:
        """Create a subscription that stays until it is deleted and belongs to no client.

        `filters` are the described filters that a link would ask for to get the `filter`: they are
        stored.

        Links consume from it by its address, or under its name with the capabilities shared and
        global, unless another topic has had a subscription of this name before. Raises
        `BrokerError` if the topic has one of that name, or no room.
        """
        if not name or self.declared_subscription(name) is not None:
            raise BrokerError("amqp:not-allowed", f"there is a subscription {name[:200]!r} already")
        key = global_key(name)
        if key in self.space.durables:
            # One topic has the name for links that ask for shared and global.
            key = topic_key(self.address, name)
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
        """Return a restored subscription; `id` is that of its queue. The caller fills in its other
        fields and calls `restored`."""
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

    def add_rule(self, subscription: Subscription, rule: SubscriptionRule) -> None:
        """See `SubscriptionRegistry.add_rule`."""
        self._registry.add_rule(subscription, rule)

    def remove_rule(self, subscription: Subscription, name: str) -> None:
        """See `SubscriptionRegistry.remove_rule`."""
        self._registry.remove_rule(subscription, name)

    def restore_rules(self, subscription: Subscription) -> None:
        """Give a restored subscription an empty set of rules, which the caller fills."""
        self._registry.use_rules(subscription, RuleSet())

    def delete_subscription(self, name: str) -> None:
        """End the links of a subscription and drop its messages. Raises `BrokerError` if there is
        none of this name."""
        self._registry.drop(self.subscription(name), "it has been deleted")

    def expire(self, subscription: Subscription) -> None:
        """See `SubscriptionOwner.expire`."""
        self._registry.drop(subscription, "it has expired")

    # -- the topic's own life ----------------------------------------------------------------

    def node_gone(self, node: Node) -> None:
        """Drop a subscription whose queue has deleted itself."""
        prefix = len(self.address) + 2
        subscription = self._registry.get(node.address[prefix:])
        if subscription is not None and subscription.queue is node:
            self._registry.drop(subscription, "it was unused")

    def party_gone(self, number: i64) -> None:
        """Start the time of subscriptions that waited for the end of this session or connection."""
        self._expiry.party_gone(number)

    def change_policy(self, policy: TopicPolicy) -> None:
        """Use another policy from now on; existing subscriptions keep theirs."""
        before = self.policy
        self.policy = policy
        self._follow(policy)
        if policy.send_disabled and not before.send_disabled:
            evict_producers(self)
        self.space.timers.cancel(self._idle)
        if policy.auto_delete > 0:
            self._consider_idle()

    def link_opened(self) -> None:
        """Count a link: the topic is in use."""
        super().link_opened()
        self._fresh = None
        self.space.timers.cancel(self._idle)

    def link_closed(self) -> None:
        """Count a link that is gone; the topic may be unused now."""
        super().link_closed()
        self._consider_idle()

    def subscription_added(self) -> None:
        """Note that the topic is in use."""
        self.space.timers.cancel(self._idle)

    def subscription_dropped(self) -> None:
        """Delete the topic if it is unused now, or if it existed only for the dropped messages."""
        self._consider_idle()
        if self.lifetime != PERMANENT:
            self.touch()

    def dispatch(self) -> None:
        """Offer room to producers; delete the topic if there is no reason left to keep it."""
        super().dispatch()
        if self.lifetime != PERMANENT:
            self.reconsider_life()

    def _consider_idle(self) -> None:
        after = self.policy.auto_delete
        if after >= 0 and self.links == 0 and len(self._registry) == 0 and not self.deleted:
            self.space.timers.set(self._idle, self.agenda.now + after)

    def delete(self, error: Error) -> None:
        """End every link with `error` and drop every subscription."""
        self.deleted = True
        if self.store_id != 0:
            self.agenda.changes.drop_range(SUBSCRIPTION, self.store_id, 0, LAST)
            self.agenda.changes.drop_range(DUPLICATE, self.store_id, 0, LAST)
        for subscription in self._registry.all():
            self._registry.records.drop_rules(subscription)
            subscription.store_id = 0
        self.space.timers.cancel(self._idle)
        super().delete(error)

    def parts(self) -> list[Node]:
        """Return the queues of its subscriptions."""
        return [subscription.queue for subscription in self._registry.all()]

    def message_count(self) -> i64:
        """Return the messages of all subscriptions; a message counts once in each subscription."""
        count: i64 = 0
        for subscription in self._registry.all():
            count += subscription.queue.message_count()
        return count

    def figures(self) -> dict[str, int]:
        """Return its counters; the messages are counted by the subscriptions."""
        return {
            "subscriptions": len(self._registry),
            "producers": len(self.producers),
            "published": int(self.published),
            "refused": int(self.refused),
            "duplicates": int(self.duplicated),
        }

    def describe(self) -> dict[str, object]:
        """Return its settings and figures. Each subscription has its own."""
        policy = self.policy
        return {
            "name": self.address,
            "type": self.kind,
            "max-subscriptions": policy.max_subscriptions,
            "max-rules": policy.max_rules,
            "auto-subscribe": policy.auto_subscribe,
            "duplicate-window": policy.duplicate_window,
            "duplicate-limit": policy.duplicate_limit,
            "auto-delete": policy.auto_delete,
            "subscriptions": len(self._registry),
            "filters": self._registry.fanout.filters(),
            "links": self.links,
            "producers": len(self.producers),
            "messages": self.message_count(),
            "published": self.published,
            "refused": self.refused,
            "duplicates": self.duplicated,
        }
