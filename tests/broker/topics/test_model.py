"""Subscribers that come, go, get lost and come back, against what each should have seen."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ferrymq_broker.nodes.topics.topic import Topic
from ferrymq_broker.values.policy import TopicPolicy
from ferrymq_types.messaging import Accepted, Source, TerminusDurability, TerminusExpiryPolicy
from tests.broker.harness import Client, Network, Receiver

TIMEOUT = 100
NAMES = st.sampled_from(["one", "two", "three"])
POLICIES = st.sampled_from(
    [
        TerminusExpiryPolicy.LINK_DETACH,
        TerminusExpiryPolicy.SESSION_END,
        TerminusExpiryPolicy.CONNECTION_CLOSE,
        TerminusExpiryPolicy.NEVER,
    ]
)


class Expected:
    """A durable subscription as it should be: what it holds, and when it goes."""

    def __init__(self, policy: TerminusExpiryPolicy) -> None:
        self.policy = policy
        self.messages: list[bytes] = []
        self.reader: Receiver | None = None
        # When it goes if nobody comes back; None for not (yet).
        self.goes: float | None = None


class Subscribers(RuleBasedStateMachine):
    """Each name is a link of one container, whose connection comes and goes."""

    def __init__(self) -> None:
        super().__init__()
        self.net = Network()
        topic = self.net.space.create("news", TopicPolicy())
        assert isinstance(topic, Topic)
        self.topic = topic
        self.sender = self.net.connect().sender("news")
        self.client: Client | None = None
        self.expected: dict[str, Expected] = {}
        self.sent = 0

    def connected(self) -> Client:
        if self.client is None:
            self.client = self.net.connect(container_id="reader")
        return self.client

    def left(self, expected: Expected, event: TerminusExpiryPolicy) -> None:
        if expected.goes is None and expected.policy is event:
            expected.goes = self.net.now + TIMEOUT

    @rule(count=st.integers(1, 3))
    def publish(self, count: int) -> None:
        for _ in range(count):
            self.sent += 1
            body = b"%d" % self.sent
            self.sender.send(body)
            for expected in self.expected.values():
                expected.messages.append(body)

    @rule(name=NAMES, policy=POLICIES)
    def attach(self, name: str, policy: TerminusExpiryPolicy) -> None:
        expected = self.expected.get(name)
        if expected is not None and expected.reader is not None:
            return
        source = Source(
            address="news",
            durable=TerminusDurability.CONFIGURATION,
            expiry_policy=policy,
            timeout=TIMEOUT,
        )
        reader = self.connected().receiver("news", source=source, name=name, credit=1000)
        if expected is None:
            expected = self.expected[name] = Expected(policy)
        expected.policy = policy
        expected.reader = reader
        expected.goes = None
        assert reader.bodies() == expected.messages

    @rule(name=NAMES, count=st.integers(0, 3))
    def accept(self, name: str, count: int) -> None:
        expected = self.expected.get(name)
        if expected is None or expected.reader is None:
            return
        reader = expected.reader
        taken = reader.deliveries[:count]
        if taken:
            reader.settle(Accepted(), *taken)
            del reader.deliveries[: len(taken)]
            del expected.messages[: len(taken)]

    @rule(name=NAMES, closed=st.booleans())
    def leave(self, name: str, closed: bool) -> None:
        expected = self.expected.get(name)
        if expected is None or expected.reader is None:
            return
        expected.reader.close(closed=closed)
        expected.reader = None
        if closed:
            del self.expected[name]
        else:
            self.left(expected, TerminusExpiryPolicy.LINK_DETACH)

    @precondition(lambda self: self.client is not None)
    @rule(lost=st.booleans())
    def disconnect(self, lost: bool) -> None:
        client = self.client
        assert client is not None
        client.lose() if lost else client.close()
        self.client = None
        for expected in self.expected.values():
            if expected.reader is not None:
                expected.reader = None
                self.left(expected, TerminusExpiryPolicy.LINK_DETACH)
            self.left(expected, TerminusExpiryPolicy.SESSION_END)
            self.left(expected, TerminusExpiryPolicy.CONNECTION_CLOSE)

    @rule(seconds=st.sampled_from([1, 49, 120]))
    def wait(self, seconds: int) -> None:
        self.net.advance(seconds)
        for name, expected in list(self.expected.items()):
            if expected.goes is not None and expected.goes <= self.net.now:
                del self.expected[name]

    @invariant()
    def what_is_there_is_what_should_be(self) -> None:
        found = {s.link_name: s.queue.message_count() for s in self.topic.subscriptions()}
        assert found == {name: len(e.messages) for name, e in self.expected.items()}
        for expected in self.expected.values():
            if expected.reader is not None:
                assert expected.reader.bodies() == expected.messages

    def teardown(self) -> None:
        self.net.space.remove(self.topic)
        assert self.net.space.durables == {}
        assert self.net.space.awaiting == {}
        assert self.net.broker.agenda.held == 0


TestSubscribers = Subscribers.TestCase
