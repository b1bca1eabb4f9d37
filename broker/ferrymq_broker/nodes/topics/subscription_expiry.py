"""When a subscription that nobody is attached to comes to its end (AMQP 1.0 §3.5.5–6).

The expiry policy of its terminus says which event lets the time run, `timeout` how long it runs: at
once after the detach, when the session or the connection of the link has ended, or never.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from ferrymq_broker.nodes.topics.persistence import put_subscription
from ferrymq_broker.timers import Timer

if TYPE_CHECKING:
    from ferrymq_broker.nodes.link_terms import SourceTerms
    from ferrymq_broker.nodes.topics.subscription import Subscription
    from ferrymq_broker.nodes.topics.topic import Topic


@final
class _Deadline(Timer):
    """When one subscription's time is over."""

    __slots__ = ("expiry", "subscription")

    def __init__(self, expiry: SubscriptionExpiry, subscription: Subscription) -> None:
        super().__init__()
        self.expiry = expiry
        self.subscription = subscription

    def on_time(self, now: i64) -> None:
        """It is over."""
        self.expiry.over(self.subscription)


@final
class SubscriptionExpiry:
    """The subscriptions of one topic that wait: for somebody to come back, or for their end."""

    __slots__ = ("topic", "_deadlines", "_awaiting")

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self._deadlines: dict[Subscription, _Deadline] = {}
        # By the number of the session or connection whose end lets the time run.
        self._awaiting: dict[int, dict[Subscription, None]] = {}

    def detached(self, subscription: Subscription, terms: SourceTerms) -> None:
        """The last link, with these terms, has been detached or lost."""
        policy = subscription.expiry_policy
        if policy == "link-detach":
            self._run(subscription)
        elif policy == "session-end":
            self._await(subscription, terms.party.session)
        elif policy == "connection-close":
            self._await(subscription, terms.party.connection)

    def attached(self, subscription: Subscription) -> None:
        """Somebody has come back, or the subscription is gone: no time runs."""
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
        """The subscription was stored, and whoever was attached to it is gone with his session and
        his connection. What time it has left runs on, or begins to run now."""
        if subscription.declared or subscription.expiry_policy == "never":
            subscription.idle_since = 0
            return
        if subscription.idle_since == 0:
            subscription.idle_since = self.topic.agenda.wall
            put_subscription(self.topic, subscription)
        self._set(subscription)

    def party_gone(self, number: int) -> None:
        """The session or connection of this number has ended."""
        for subscription in self._awaiting.pop(number, {}):
            subscription.awaits = 0
            self._run(subscription)

    def over(self, subscription: Subscription) -> None:
        """Its time is over."""
        self._deadlines.pop(subscription, None)
        self.topic.expire(subscription)

    def _run(self, subscription: Subscription) -> None:
        if subscription.timeout == 0:
            self.topic.expire(subscription)
            return
        subscription.idle_since = self.topic.agenda.wall
        self._set(subscription)
        put_subscription(self.topic, subscription)

    def _set(self, subscription: Subscription) -> None:
        deadline = _Deadline(self, subscription)
        self._deadlines[subscription] = deadline
        # Of a subscription that was stored, the time that it had before a restart counts.
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
