"""Every message exactly once, whatever is cut and wherever: a publisher and a consumer that resume,
a broker that stops and starts, a disk that may not have written yet (AMQP 1.0 §2.6.13)."""

from __future__ import annotations

from collections import Counter

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from ferrymq.engine.events import DeliveryReceived
from ferrymq.engine.resumption import Resolution, is_outcome
from ferrymq_types.messaging import Accepted, Modified, Released
from ferrymq_types.transport import ReceiverSettleMode
from tests.broker.harness import Client, Network, text
from tests.broker.termini.clients import Consumer, Publisher, message, source, stored, target

# How much of what is under way still arrives, in steps: up to the broker or down to the client.
wires = st.lists(st.tuples(st.booleans(), st.integers(0, 700)), max_size=8)


class Wire:
    """What is under way between a client and the broker, moved by hand."""

    def __init__(self, net: Network, client: Client) -> None:
        self.net = net
        self.client = client
        self.up = b""
        net.clients.remove(client)

    def move(self, script: list[tuple[bool, int]]) -> None:
        client = self.client
        for up, size in script:
            self.up += client.engine.data_to_send()
            if up:
                data, self.up = self.up[:size], self.up[size:]
                if data and not client.hung_up:
                    client.handler.receive_data(data, self.net.now)
                # The disk, unless it is stopped.
                self.net.run()
            else:
                down = b"".join(client.inbox)
                client.inbox[:] = [down[size:]]
                if down[:size]:
                    client.engine.receive_data(down[:size], self.net.now)


class Machine(RuleBasedStateMachine):
    @initialize(
        mode=st.sampled_from([ReceiverSettleMode.FIRST, ReceiverSettleMode.SECOND]),
        small=st.booleans(),
    )
    def begin(self, mode: ReceiverSettleMode, small: bool) -> None:
        self.net = stored()
        size = 512 if small else 65536
        self.publisher = Publisher(self.net, mode, to=target(), max_frame_size=size)
        self.consumer = Consumer(self.net, of=source(), max_frame_size=size)
        self.sent: list[bytes] = []
        # How often each message may come: once, and once more for each time it was given back.
        self.allowed: Counter[bytes] = Counter()
        self.processed: Counter[bytes] = Counter()
        self.tags = 0
        self.revive()

    # -- the two of them -------------------------------------------------------------------------

    def revive(self) -> None:
        """Both are connected, attached, and have resumed what there was."""
        if self.publisher not in self.connected():
            self.revive_publisher()
        if self.consumer not in self.connected():
            self.revive_consumer()

    def connected(self) -> list[Publisher | Consumer]:
        return [
            one
            for one in (self.publisher, self.consumer)
            if getattr(one, "client", None) in self.net.clients
        ]

    def revive_publisher(self) -> None:
        one = self.publisher
        one.connect()
        for _ in range(60):
            one.attach()
            resumption = one.link.resumption
            assert resumption is not None
            unsent = [t for t, r in one.resume().items() if r is Resolution.RESEND]
            one.learn()
            if resumption.whole:
                return
            # What the broker has never heard of has been withdrawn: it is sent when there is room.
            for tag in unsent:
                assert tag in one.unsettled
            one.sender.close(closed=False)
        raise AssertionError("the maps never become whole")

    def revive_consumer(self) -> None:
        one = self.consumer
        one.connect()
        for _ in range(60):
            receiver = one.attach(200)
            attach = one.link.remote_attach
            resumption = one.link.resumption
            assert attach is not None and resumption is not None
            self.look()
            if resumption.complete and not attach.incomplete_unsettled:
                return
            one.give(Accepted())
            self.look()
            if not receiver.detached:
                receiver.close(closed=False)
        raise AssertionError("the maps never become whole")

    def look(self) -> None:
        """What the consumer has been given."""
        client = self.consumer.client
        client.events += client.engine.take_events()
        for event in client.events:
            if isinstance(event, DeliveryReceived):
                self.processed[text(event.delivery.payload)] += 1
        client.events.clear()
        self.consumer.note()
        for body, count in self.processed.items():
            assert count <= 1 + self.allowed[body], body

    # -- work ------------------------------------------------------------------------------------

    def fresh(self) -> tuple[bytes, bytes]:
        self.tags += 1
        tag = b"t%d" % self.tags
        self.sent.append(tag)
        return tag, tag

    @rule(count=st.integers(1, 5), settle=st.booleans())
    def publish(self, count: int, settle: bool) -> None:
        for _ in range(count):
            tag, _ = self.fresh()
            self.publisher.send(tag)
        self.publisher.learn(settle=settle)
        self.look()

    @rule(accept=st.integers(1, 5))
    def accept(self, accept: int) -> None:
        self.look()
        tags = [t for t, d in self.consumer.unsettled.items() if d.state is None][:accept]
        if tags:
            self.consumer.give(Accepted(), *tags)
        self.look()

    @rule(failed=st.booleans())
    def give_back(self, failed: bool) -> None:
        self.look()
        for tag, delivery in list(self.consumer.unsettled.items())[:1]:
            if delivery.state is None:
                self.allowed[text(delivery.payload)] += 1
                self.consumer.give(Modified(delivery_failed=True) if failed else Released(), tag)
        self.look()

    @rule()
    def stop_the_disk(self) -> None:
        assert self.net.store is not None
        self.net.store.held = True

    @rule()
    def let_the_disk_go_on(self) -> None:
        assert self.net.store is not None
        self.net.store.release()
        self.net.run()
        self.publisher.learn()
        self.look()

    # -- what goes wrong -------------------------------------------------------------------------

    def release_disk(self, broker: bool) -> None:
        """The disk is there again, with or without what it had not written."""
        store = self.net.store
        assert store is not None
        if broker:
            store.held = False
            self.net.restart()
        else:
            store.release()
            self.net.run()

    @rule(count=st.integers(0, 4), wire=wires, broker=st.booleans(), looks=st.booleans())
    def cut_publisher(
        self, count: int, wire: list[tuple[bool, int]], broker: bool, looks: bool
    ) -> None:
        one = self.publisher
        self.net.run()
        one.learn(settle=False)
        under_way = Wire(self.net, one.client)
        for _ in range(count):
            if one.link.usable and one.link.credit > 0:
                tag, body = self.fresh()
                one.unsettled[tag] = message(body)
                one.live[tag] = one.link.send(one.unsettled[tag], tag=tag)
        under_way.move(wire)
        if looks:
            for tag, delivery in one.live.items():
                state = delivery.remote_state
                if is_outcome(state):
                    one.states[tag] = state
        self.end(one.client, broker)

    @rule(wire=wires, broker=st.booleans())
    def cut_publisher_resuming(self, wire: list[tuple[bool, int]], broker: bool) -> None:
        one = self.publisher
        one.client.lose()
        one.connect()
        under_way = Wire(self.net, one.client)
        run, self.net.run = self.net.run, lambda: None  # type: ignore[method-assign]
        try:
            one.attach()
            self.net.run = run  # type: ignore[method-assign]
            under_way.move(wire)
            self.net.run = lambda: None  # type: ignore[method-assign]
            resumption = one.link.resumption
            assert resumption is not None
            if one.link.usable and one.link.credit > len(one.unsettled):
                one.resume()
        finally:
            self.net.run = run  # type: ignore[method-assign]
        under_way.move(wire)
        self.end(one.client, broker)

    @rule(accept=st.integers(0, 4), wire=wires, broker=st.booleans())
    def cut_consumer(self, accept: int, wire: list[tuple[bool, int]], broker: bool) -> None:
        one = self.consumer
        self.look()
        under_way = Wire(self.net, one.client)
        for delivery in list(one.unsettled.values())[:accept]:
            if delivery.state is None:
                delivery.settle(Accepted())
        under_way.move(wire)
        self.end_consumer(broker)

    @rule(wire=wires, broker=st.booleans())
    def cut_consumer_resuming(self, wire: list[tuple[bool, int]], broker: bool) -> None:
        one = self.consumer
        self.look()
        one.client.engine.receive_eof(self.net.now)
        one.unsettled = dict(one.link.unsettled)
        one.client.lose()
        one.connect()
        one.client.events.clear()
        under_way = Wire(self.net, one.client)
        one.link = one.client.session.attach_receiver(
            one.name,
            source=one.source,
            rcv_settle_mode=one.mode,
            unsettled=dict(one.unsettled),
        )
        one.link.set_credit(200)
        under_way.move(wire)
        for delivery in list(one.unsettled.values())[:1]:
            if delivery.state is None and delivery.complete:
                delivery.settle(Accepted())
        under_way.move(wire)
        self.end_consumer(broker)

    def end_consumer(self, broker: bool) -> None:
        one = self.consumer
        client = one.client
        for event in [*client.events, *client.engine.take_events()]:
            if isinstance(event, DeliveryReceived):
                self.processed[text(event.delivery.payload)] += 1
        client.events.clear()
        client.engine.receive_eof(self.net.now)
        one.unsettled = dict(one.link.unsettled)
        self.end(client, broker)

    def end(self, client: Client, broker: bool) -> None:
        if not broker:
            client.handler.receive_eof(self.net.now)
        else:
            other = self.consumer if client is self.publisher.client else self.publisher
            if isinstance(other, Consumer):
                self.look()
                other.client.engine.receive_eof(self.net.now)
                other.unsettled = dict(other.link.unsettled)
        self.release_disk(broker)
        self.revive()

    @rule(seconds=st.integers(1, 100_000))
    def time_passes(self, seconds: int) -> None:
        self.net.advance(seconds)

    def teardown(self) -> None:
        if not hasattr(self, "net"):
            return
        assert self.net.store is not None
        self.net.store.release()
        self.net.run()
        self.publisher.learn()
        for _ in range(1000):
            self.look()
            if not self.consumer.unsettled:
                break
            self.consumer.give(Accepted())
        assert not self.publisher.unsettled
        assert self.net.queue("q").message_count() == 0
        assert sorted(self.processed) == sorted(self.sent)
        for body, count in self.processed.items():
            assert 1 <= count <= 1 + self.allowed[body], body


TestExactlyOnce = Machine.TestCase
TestExactlyOnce.settings = settings(
    max_examples=100,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
