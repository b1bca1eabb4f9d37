"""Rate limits: how many messages and bytes a second a client may send.

A limit holds for one connection, or for all connections of a user together. It works without
refusals. A link of AMQP 1.0 gets credit only for as many messages as the limit allows now. A client
that sends too many bytes is not read for a while, and so is one whose protocol has no credit. Other
clients notice nothing.

A connection without limits has no throttle, so that it costs a question per read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.timers import Timer, TimerHeap

if TYPE_CHECKING:
    from ferrymq_broker.connections.connected_client import ConnectedClient
    from ferrymq_broker.connections.connection_port import ConnectionPort
    from ferrymq_broker.counters import Counters
    from ferrymq_broker.nodes.node import Agenda, Producer

# Who waits is served again when this part of a second's units is there, but at least one.
_PARTS: Final = 10


@final
class RateBucket:
    """The units that may be used now: `rate` more each second, and never more than of one second.

    Units that were used in advance are owed. `waiting` is how many connections wait. Times are in
    milliseconds (`Agenda.now`).
    """

    __slots__ = ("rate", "waiting", "_units", "_at")

    def __init__(self, rate: i64, now: i64) -> None:
        self.rate: i64 = rate
        self.waiting: i64 = 0
        self._units: float = float(rate)
        self._at: i64 = now

    def left(self, now: i64) -> float:
        """Return how many units may be used; negative if some are owed."""
        if now > self._at:
            self._units += float(self.rate) * float(now - self._at) / 1000.0
            if self._units > float(self.rate):
                self._units = float(self.rate)
            self._at = now
        return self._units

    def use(self, units: i64, now: i64) -> None:
        """Use units, in advance if there are not enough."""
        self._units = self.left(now) - float(units)

    def give_back(self, units: i64) -> None:
        """Give back units that were not used after all."""
        self._units += float(units)
        if self._units > float(self.rate):
            self._units = float(self.rate)

    def delay(self, now: i64, wanted: float) -> i64:
        """Return the milliseconds until so many units may be used."""
        lacking = wanted - self.left(now)
        if lacking <= 0.0:
            return 0
        return i64(lacking * 1000.0 / float(self.rate)) + 1

    def portion(self) -> float:
        """Return how many units are worth to be served again."""
        portion = float(self.rate) / float(_PARTS)
        return portion if portion > 1.0 else 1.0


@final
class _SupplyTimer(Timer):
    """The timer of producers that wait for credit."""

    __slots__ = ("_throttle",)

    def __init__(self, throttle: ClientThrottle) -> None:
        super().__init__()
        self._throttle = throttle

    def on_time(self, now: i64) -> None:
        """Give the producers credit."""
        self._throttle.supply()


@final
class _InputTimer(Timer):
    """The timer of a connection that is not read."""

    __slots__ = ("_throttle",)

    def __init__(self, throttle: ClientThrottle) -> None:
        super().__init__()
        self._throttle = throttle

    def on_time(self, now: i64) -> None:
        """Read from the client again."""
        self._throttle.release()


@final
class ClientThrottle:
    """The rate limits of one connection: its own, and those of its user.

    `owner` is the connection, None when it is over. `user` is the user whose limits count, None
    without any.
    """

    __slots__ = (
        "owner",
        "user",
        "_messages",
        "_bytes",
        "_agenda",
        "_timers",
        "_counters",
        "_producers",
        "_supply_timer",
        "_input_timer",
        "_turns",
        "_denied",
        "_holds_input",
        "_since",
        "_time",
    )

    def __init__(
        self,
        owner: ConnectionPort,
        messages: list[RateBucket],
        bytes: list[RateBucket],
        agenda: Agenda,
        timers: TimerHeap,
        counters: Counters,
    ) -> None:
        self.owner: ConnectionPort | None = owner
        self.user: str | None = None
        self._messages = messages
        self._bytes = bytes
        self._agenda = agenda
        self._timers = timers
        self._counters = counters
        # Producers that wait, the longest waiting first.
        self._producers: dict[Producer, None] = {}
        self._supply_timer = _SupplyTimer(self)
        self._input_timer = _InputTimer(self)
        # While producers are supplied in turn: how many are left, and whether the last one got
        # nothing.
        self._turns: i64 = 0
        self._denied = False
        self._holds_input = False
        # Since when the connection has been throttled, 0 if it is not; and how long it was before.
        self._since: i64 = 0
        self._time: i64 = 0

    # -- information -----------------------------------------------------------------------

    def is_throttled(self) -> bool:
        """Return whether the client has to wait now."""
        return self._holds_input or len(self._producers) > 0

    def throttled_time(self) -> i64:
        """Return for how many milliseconds the client has had to wait."""
        return self._time + (self._agenda.now - self._since if self._since != 0 else 0)

    # -- credit ----------------------------------------------------------------------------

    def allow(self, wanted: i64) -> i64:
        """Return how many of the wanted messages a link may be promised now: nothing while others
        have waited longer, and in its turn its share."""
        now = self._agenda.now
        turns = self._turns
        if turns == 0 and self._is_behind_others():
            return 0
        for bucket in self._messages:
            left = bucket.left(now)
            share = left / float((bucket.waiting + 1) * (turns if turns > 0 else 1))
            if share < 1.0 and left >= 1.0:
                share = 1.0
            if share < float(wanted):
                wanted = i64(share) if share > 0.0 else 0
        self._denied = wanted == 0
        return wanted

    def _is_behind_others(self) -> bool:
        return len(self._producers) > 0 or any(bucket.waiting > 0 for bucket in self._messages)

    def promise(self, messages: i64) -> None:
        """Count messages for which a link has got credit."""
        now = self._agenda.now
        for bucket in self._messages:
            bucket.use(messages, now)

    def take_back(self, messages: i64) -> None:
        """Count credit that a link has not used."""
        for bucket in self._messages:
            bucket.give_back(messages)

    def wait(self, producer: Producer) -> None:
        """Supply a producer when more messages are allowed."""
        if not self._producers:
            for bucket in self._messages:
                bucket.waiting += 1
        self._producers[producer] = None
        self._note()
        if self._supply_timer.due == 0:
            now = self._agenda.now
            delay: i64 = 1
            for bucket in self._messages:
                other = bucket.delay(now, bucket.portion())
                if other > delay:
                    delay = other
            self._timers.set(self._supply_timer, now + delay)

    def supply(self) -> None:
        """Give the producers credit that wait for it, in turn. Those for which nothing was left are
        the first ones the next time."""
        producers = list(self._producers)
        self._producers = {}
        if producers:
            for bucket in self._messages:
                bucket.waiting -= 1
        first: dict[Producer, None] = {}
        self._turns = len(producers)
        for producer in producers:
            self._denied = False
            producer.supply()
            if self._denied and producer in self._producers:
                first[producer] = None
            self._turns -= 1
        self._turns = 0
        if first:
            first.update(self._producers)
            self._producers = first
        self._note()

    def forget(self, producer: Producer) -> None:
        """Remove a producer that waits, because its link is gone."""
        if producer in self._producers:
            del self._producers[producer]
            if not self._producers:
                for bucket in self._messages:
                    bucket.waiting -= 1
            self._note()

    # -- input -----------------------------------------------------------------------------

    def count_input(self, bytes: i64, messages: i64) -> bool:
        """Count what was read; return whether nothing more may be read for now."""
        now = self._agenda.now
        delay: i64 = 0
        for bucket in self._bytes:
            bucket.use(bytes, now)
            other = bucket.delay(now, 0.0)
            if other > delay:
                delay = other
        if messages > 0:
            for bucket in self._messages:
                bucket.use(messages, now)
                other = bucket.delay(now, 0.0)
                if other > delay:
                    delay = other
        if delay > 0:
            self._holds_input = True
            self._timers.set(self._input_timer, now + delay)
            self._note()
        return self._holds_input

    def holds_input(self) -> bool:
        """Return whether nothing is read for now."""
        return self._holds_input

    def release(self) -> None:
        """Read from the client again."""
        self._holds_input = False
        self._note()
        if self.owner is not None:
            self.owner.resume_input()

    # -- the end ---------------------------------------------------------------------------

    def stop(self) -> None:
        """Cancel the timers, because the connection is over."""
        self.owner = None
        self._holds_input = False
        if self._producers:
            self._producers = {}
            for bucket in self._messages:
                bucket.waiting -= 1
        self._timers.cancel(self._supply_timer)
        self._timers.cancel(self._input_timer)

    def _note(self) -> None:
        """Note since when the client has had to wait."""
        if self.is_throttled():
            if self._since == 0:
                self._since = self._agenda.now
                self._counters.throttles += 1
        elif self._since != 0:
            self._time += self._agenda.now - self._since
            self._since = 0


@final
class UserBuckets:
    """The limits of one user, which its `connections` share."""

    __slots__ = ("messages", "bytes", "connections")

    def __init__(self, messages: list[RateBucket], bytes: list[RateBucket]) -> None:
        self.messages: list[RateBucket] = messages
        self.bytes: list[RateBucket] = bytes
        self.connections: i64 = 0


@final
class RateLimits:
    """The rate limits of one broker, 0 for none: `messages` and `bytes` a second for each
    connection, `user_messages` and `user_bytes` for all connections of each user."""

    __slots__ = (
        "messages",
        "bytes",
        "user_messages",
        "user_bytes",
        "_agenda",
        "_timers",
        "_counters",
        "_users",
    )

    def __init__(self, agenda: Agenda, timers: TimerHeap, counters: Counters) -> None:
        self.messages: i64 = 0
        self.bytes: i64 = 0
        self.user_messages: i64 = 0
        self.user_bytes: i64 = 0
        self._agenda = agenda
        self._timers = timers
        self._counters = counters
        self._users: dict[str, UserBuckets] = {}

    def enter(self, owner: ConnectionPort, client: ConnectedClient) -> None:
        """Give a connection that has opened its limits, if there are any."""
        messages = self._buckets(self.messages)
        bytes = self._buckets(self.bytes)
        user = client.user
        shared: UserBuckets | None = None
        if user is not None and (self.user_messages > 0 or self.user_bytes > 0):
            shared = self._users.get(user)
            if shared is None:
                shared = UserBuckets(
                    self._buckets(self.user_messages), self._buckets(self.user_bytes)
                )
                self._users[user] = shared
            shared.connections += 1
            messages += shared.messages
            bytes += shared.bytes
        if messages or bytes:
            throttle = ClientThrottle(
                owner, messages, bytes, self._agenda, self._timers, self._counters
            )
            throttle.user = user if shared is not None else None
            client.throttle = throttle

    def _buckets(self, rate: i64) -> list[RateBucket]:
        return [RateBucket(rate, self._agenda.now)] if rate > 0 else []

    def leave(self, client: ConnectedClient) -> None:
        """Forget a connection that is over."""
        throttle = client.throttle
        if throttle is None:
            return
        client.throttle = None
        throttle.stop()
        user = throttle.user
        if user is not None:
            shared = self._users[user]
            shared.connections -= 1
            if shared.connections == 0:
                del self._users[user]
