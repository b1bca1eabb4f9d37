"""The expiry of a subscription without links (AMQP 1.0 §3.5.5–6).

The expiry policy of its terminus says which event starts the time, `timeout` says how long the time
is. The event is the detach, the end of the link's session or of its connection, or none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from ferrymq_broker.timers import Timer

if TYPE_CHECKING:
    from ferrymq_broker.nodes.link_terms import SourceTerms
    from ferrymq_broker.nodes.topics.persistence import SubscriptionRecords
    from ferrymq_broker.nodes.topics.subscription import Subscription, SubscriptionOwner


@final
class _Deadline(Timer):
    """The timer for the end of one subscription."""

    __slots__ = ("expiry", "subscription")

    def __init__(self, expiry: SubscriptionExpiry, subscription: Subscription) -> None:
        super().__init__()
        self.expiry = expiry
        self.subscription = subscription

    def on_time(self, now: i64) -> None:
        """End the subscription, which has expired."""
        self.expiry.over(self.subscription)


@final
class SubscriptionExpiry:
    """The subscriptions of one topic without links: each waits for a link, or for its expiry."""

    __slots__ = ("topic", "_records", "_deadlines", "_awaiting")

    def __init__(self, topic: SubscriptionOwner, records: SubscriptionRecords) -> None:
        self.topic: SubscriptionOwner = topic
        self._records = records
        self._deadlines: dict[Subscription, _Deadline] = {}
        # The key is the number of the session or connection whose end starts the expiry time.
        self._awaiting: dict[int, dict[Subscription, None]] = {}

    def detached(self, subscription: Subscription, terms: SourceTerms) -> None:
        """Start the expiry time, now or later: the last link, with these terms, is detached or
        lost."""
        policy = subscription.expiry_policy
        if policy == "link-detach":
            self._run(subscription)
        elif policy == "session-end":
            self._await(subscription, terms.party.session)
        elif policy == "connection-close":
            self._await(subscription, terms.party.connection)

    def attached(self, subscription: Subscription) -> None:
        """Stop the expiry time: a link is attached again, or the subscription has ended."""
        deadline = self._deadlines.pop(subscription, None)
        if deadline is not None:
            self.topic.space.timers.cancel(deadline)
        subscription.idle_since = 0
        number = subscription.awaits
        if number != 0:
            subscription.awaits = 0
            waiting = self._awaiting[number]
            del waiting[subscription]
            if not waiting:
                del self._awaiting[number]
                self._forget(number)

    def restore(self, subscription: Subscription) -> None:
        """Continue the expiry time of a stored subscription, or start it.

        The link that was attached to it is gone with its session and its connection.
        """
        if subscription.declared or subscription.expiry_policy == "never":
            subscription.idle_since = 0
            return
        if subscription.idle_since == 0:
            subscription.idle_since = self.topic.agenda.wall
            self._records.put(subscription)
        self._set(subscription)

    def party_gone(self, number: int) -> None:
        """Start the expiry time of subscriptions that wait for the end of this session or
        connection."""
        for subscription in self._awaiting.pop(number, {}):
            subscription.awaits = 0
            self._run(subscription)

    def over(self, subscription: Subscription) -> None:
        """End a subscription that has expired."""
        self._deadlines.pop(subscription, None)
        self.topic.expire(subscription)

    def _run(self, subscription: Subscription) -> None:
        if subscription.timeout == 0:
            self.topic.expire(subscription)
            return
        subscription.idle_since = self.topic.agenda.wall
        self._set(subscription)
        self._records.put(subscription)

    def _set(self, subscription: Subscription) -> None:
        deadline = _Deadline(self, subscription)
        self._deadlines[subscription] = deadline
        # The time before a restart counts for a stored subscription.
        since = self.topic.agenda.moment_of(subscription.idle_since)
        self.topic.space.timers.set(deadline, since + subscription.timeout * 1000)

    def _await(self, subscription: Subscription, number: int) -> None:
        subscription.awaits = number
        waiting = self._awaiting.get(number)
        if waiting is None:
            self._awaiting[number] = {subscription: None}
            self.topic.space.awaiting.setdefault(number, {})[self.topic] = None
        else:
            waiting[subscription] = None

    def _forget(self, number: int) -> None:
        topics = self.topic.space.awaiting.get(number)
        if topics is not None and self.topic in topics:
            del topics[self.topic]
            if not topics:
                del self.topic.space.awaiting[number]
