"""Whatever was done, and whenever the broker stops: afterwards there is what was on disk then."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from ferrymq.engine.delivery import IncomingDelivery
from ferrymq_broker.nodes.exchanges.exchange import Exchange
from ferrymq_broker.nodes.node import Node
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.nodes.topics.topic import Topic
from ferrymq_broker.values.policy import ExchangePolicy, QueuePolicy, TopicPolicy
from ferrymq_types.messaging import Accepted, Modified, Properties, Rejected, Released
from ferrymq_types.unions import DeliveryState
from tests.broker.harness import Client, Network, Receiver, header, text
from tests.broker.recovery.kit import send, store_of, stored_network, subscribe

KEYS = ("k1", "k2")
SUBSCRIBERS = ("s1", "s2")
# Seconds that one message of three may stay.
TTL = 100
WINDOW = 1000
POLICIES = {
    "a": QueuePolicy(delivery_limit=1, dead_letter="dead"),
    "b": QueuePolicy(duplicate_window=WINDOW * 1000),
    "bounded": QueuePolicy(max_length=2, overflow="drop-head"),
    "dead": QueuePolicy(),
}
QUEUES = tuple(POLICIES)


@dataclass
class Waiting:
    """A message in a queue, or one that is to come at `due`."""

    body: bytes
    failures: int = 0
    expires: float | None = None
    due: float = 0.0
    durable: bool = True


@dataclass
class World:
    """What clients may expect to find."""

    queues: dict[str, list[Waiting]] = field(default_factory=dict)
    to_come: dict[str, list[Waiting]] = field(default_factory=dict)
    seen: dict[str, float] = field(default_factory=dict)
    bindings: set[tuple[str, str]] = field(default_factory=set)
    subscribers: set[str] = field(default_factory=set)


class Restarts(RuleBasedStateMachine):
    """Operations on queues, an exchange and a topic; `disk` is the world as it was on disk last."""

    @initialize()
    def start(self) -> None:
        self.net: Network = stored_network()
        self.world = World()
        for name in QUEUES:
            self.net.declare(name, POLICIES[name])
            self.world.queues[name] = []
            self.world.to_come[name] = []
        self.net.space.create("x", ExchangePolicy())
        self.net.space.create("t", TopicPolicy())
        self.number = 0
        self._connect()
        self.disk = copy.deepcopy(self.world)

    def _connect(self) -> None:
        self.client: Client = self.net.connect()
        addresses = [*QUEUES, *(f"x::{key}" for key in KEYS), "t"]
        self.senders = {address: self.client.sender(address) for address in addresses}

    # -- what the model makes of it ------------------------------------------------------------

    def _put(self, name: str, message: Waiting) -> None:
        queue = self.world.queues[name]
        queue.append(message)
        if name == "bounded" and len(queue) > 2:
            del queue[0]

    def _let_pass(self) -> None:
        """What is due by now has happened."""
        now = self.net.now
        for name, to_come in self.world.to_come.items():
            for message in sorted(to_come, key=lambda one: one.due):
                if message.due <= now:
                    to_come.remove(message)
                    message.due = 0.0
                    self._put(name, message)
        for name, queue in list(self.world.queues.items()):
            late = [one for one in queue if one.expires is not None and one.expires <= now]
            for message in sorted(late, key=lambda one: one.expires or 0.0):
                queue.remove(message)
                if name == "a":
                    message.expires = None
                    self.world.queues["dead"].append(message)
        self.world.seen = {k: t for k, t in self.world.seen.items() if t + WINDOW > now}

    def _done(self) -> None:
        """The world changed, and the change is on disk unless it is held back."""
        if not store_of(self.net).held:
            self.disk = copy.deepcopy(self.world)

    def _body(self) -> bytes:
        self.number += 1
        return str(self.number).encode()

    # -- messages in ---------------------------------------------------------------------------

    @rule(name=st.sampled_from(QUEUES), durable=st.booleans(), ttl=st.booleans())
    def publish(self, name: str, durable: bool, ttl: bool) -> None:
        body = self._body()
        send(self.senders[name], body, durable=durable, ttl=TTL * 1000 if ttl else None)
        expires = self.net.now + TTL if ttl else None
        self._put(name, Waiting(body, expires=expires, durable=durable))
        self._done()

    @rule(id=st.sampled_from(["i", "j", "k"]))
    def publish_once(self, id: str) -> None:
        body = self._body()
        send(self.senders["b"], body, properties=Properties(message_id=id))
        if id not in self.world.seen:
            self.world.seen[id] = self.net.now
            self._put("b", Waiting(body))
        self._done()

    @rule(name=st.sampled_from(("a", "b")), delay=st.sampled_from([50, 150]))
    def schedule(self, name: str, delay: int) -> None:
        body = self._body()
        send(
            self.senders[name],
            body,
            annotations={"x-opt-delivery-delay": delay * 1000},
        )
        # Those of one moment come in the order in which they were sent.
        self.world.to_come[name].append(Waiting(body, due=self.net.now + delay))
        self._done()

    @rule(key=st.sampled_from(KEYS))
    def route(self, key: str) -> None:
        body = self._body()
        targets = [name for name in QUEUES if (key, name) in self.world.bindings]
        send(self.senders[f"x::{key}"], body)
        for name in sorted(targets):
            self._put(name, Waiting(body))
        self._done()

    @rule()
    def tell(self) -> None:
        body = self._body()
        send(self.senders["t"], body)
        for name in self.world.subscribers:
            self.world.queues[name].append(Waiting(body))
        self._done()

    # -- messages out --------------------------------------------------------------------------

    @precondition(lambda self: not store_of(self.net).held)
    @rule(
        name=st.sampled_from(QUEUES),
        how=st.sampled_from(["accept", "reject", "release", "fail"]),
    )
    def consume(self, name: str, how: str) -> None:
        queue = self.world.queues[name]
        receiver = self.client.receiver(name, credit=1)
        taken = receiver.take()
        assert [text(one.payload) for one in taken] == [one.body for one in queue[:1]]
        if taken:
            self._settle(name, receiver, taken[0], how)
        receiver.close()
        self._done()

    def _settle(self, name: str, receiver: Receiver, taken: IncomingDelivery, how: str) -> None:
        queue = self.world.queues[name]
        message = queue[0]
        assert header(taken.payload).delivery_count == message.failures
        states: dict[str, DeliveryState] = {
            "accept": Accepted(),
            "reject": Rejected(),
            "release": Released(),
            "fail": Modified(delivery_failed=True),
        }
        receiver.settle(states[how], taken)
        if how in ("reject", "fail"):
            message.failures += 1
        dead = how == "reject" or (name == "a" and message.failures > 1)
        if dead or how == "accept":
            del queue[0]
        if dead and name == "a":
            # Its time is no matter there, but how often it was delivered is.
            letter = Waiting(message.body, message.failures, durable=message.durable)
            self.world.queues["dead"].append(letter)

    # -- nodes ---------------------------------------------------------------------------------

    @rule(key=st.sampled_from(KEYS), name=st.sampled_from(QUEUES))
    def bind(self, key: str, name: str) -> None:
        exchange = self.net.space.nodes["x"]
        assert isinstance(exchange, Exchange)
        if (key, name) in self.world.bindings:
            exchange.unbind(name, key)
            self.world.bindings.remove((key, name))
        else:
            exchange.bind(name, key)
            self.world.bindings.add((key, name))
        self.net.connect().close()
        self._done()

    @precondition(lambda self: not store_of(self.net).held)
    @rule(name=st.sampled_from(SUBSCRIBERS))
    def come_and_go(self, name: str) -> None:
        client = self.net.connect(container_id=name)
        receiver = subscribe(client, "t", "link")
        waiting = self.world.queues.get(name, [])
        assert receiver.bodies() == [one.body for one in waiting]
        receiver.settle(Accepted())
        if name in self.world.subscribers and self.number % 2:
            receiver.close(closed=True)
            self.world.subscribers.remove(name)
            del self.world.queues[name]
        else:
            receiver.close(closed=False)
            self.world.subscribers.add(name)
            self.world.queues[name] = []
        client.close()
        self._done()

    # -- the disk, and time --------------------------------------------------------------------

    @rule()
    def hold(self) -> None:
        store_of(self.net).held = True

    @rule()
    def release(self) -> None:
        store_of(self.net).release()
        self.net.run()
        self._done()

    @precondition(lambda self: not store_of(self.net).held)
    @rule(seconds=st.sampled_from([10, 60]))
    def wait(self, seconds: int) -> None:
        self.net.advance(seconds)
        self._let_pass()
        self._done()

    @rule(seconds=st.sampled_from([0, 60]))
    def stop_and_start(self, seconds: int) -> None:
        store_of(self.net).held = False
        self.net.now += seconds
        self.net.restart()
        self.world = copy.deepcopy(self.disk)
        for name, queue in self.world.queues.items():
            self.world.queues[name] = [one for one in queue if one.durable]
        self._let_pass()
        self._connect()
        self._done()

    @invariant()
    def it_is_as_expected(self) -> None:
        if not hasattr(self, "net") or store_of(self.net).held:
            return
        for name, waiting in self.world.queues.items():
            address = f"t::{name}/link" if name in SUBSCRIBERS else name
            browser = self.net.connect()
            there = browser.receiver(address, credit=1000, mode="copy").bodies()
            browser.close()
            assert there == [one.body for one in waiting], name
        for name, to_come in self.world.to_come.items():
            assert self.net.queue(name).lifecycle.scheduled() == len(to_come)
        assert self.net.broker.agenda.held == self._held()

    def _held(self) -> int:
        """What all messages take, each counted once."""
        messages = {}
        for node in self.net.space.nodes.values():
            for queue in self._queues_of(node):
                for priority_level in queue.entries.priority_levels:
                    entry = priority_level.first
                    while entry is not None:
                        messages[id(entry.message)] = len(entry.message.payload)
                        entry = entry.next
                for scheduled in queue.lifecycle.list_scheduled():
                    messages[id(scheduled.message)] = len(scheduled.message.payload)
        return sum(messages.values())

    def _queues_of(self, node: Node) -> list[Queue]:
        if isinstance(node, Queue):
            return [node]
        if isinstance(node, Topic):
            return [one.queue for one in node.subscriptions()]
        return []


TestRestarts = Restarts.TestCase
TestRestarts.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
