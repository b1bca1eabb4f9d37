"""Random transactions over nodes of every kind: all of each is seen at once, or nothing ever.

A watcher on each node looks on, as does one who reads several. Every message of a transaction
carries its number and how many pieces the transaction makes. After each step, what the watchers
have seen of a transaction is all of its pieces, if it was committed, or none. At the end the
messages that were there to begin with are counted: none was lost, and none is there twice.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from ferrymq.engine.delivery import IncomingDelivery
from ferrymq_broker.nodes.exchanges.exchange import Exchange
from ferrymq_broker.values.policy import ExchangePolicy, QueuePolicy, StreamPolicy, TopicPolicy
from ferrymq_types.messaging import Accepted, Data, Properties, Rejected, Released
from tests.broker.harness import Client, Network, Receiver, Sender, text
from tests.broker.transactions.kit import Controller, acquire, post_sections, retire

# Where messages are posted, and how many pieces are seen of one.
TARGETS = {"q1": 1, "q2": 1, "t": 2, "s": 1, "x::both": 2, "tight": 0}
SOURCES = ("in1", "in2")
JOBS = 30


class Model:
    """What is known of one transaction."""

    def __init__(self, number: int, txn: bytes, controller: Controller) -> None:
        self.number = number
        self.txn = txn
        self.controller = controller
        # Pieces that are to be seen if it is committed, and those in the bounded queue.
        self.pieces = 0
        self.bound = 0
        self.jobs: list[bytes] = []
        self.over = False


def _is_lost(delivery: IncomingDelivery) -> bool:
    """Whether the broker has taken the message back; if it has, confirm that."""
    if isinstance(delivery.remote_state, Released):
        delivery.settle(Released())
    return delivery.settled or delivery.remote_settled


class World:
    """A broker with its nodes, those who watch, and one client that controls transactions."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.net = net = Network()
        net.broker.transaction_limits.timeout = 50_000
        for name in ("q1", "q2", "x1", "x2", *SOURCES):
            net.declare(name)
        net.declare("tight", QueuePolicy(max_length=6, overflow="reject"))
        net.space.create("t", TopicPolicy())
        net.space.create("s", StreamPolicy(partitions=2))
        exchange = net.space.create("x", ExchangePolicy(type="fanout"))
        assert isinstance(exchange, Exchange)
        exchange.bind("x1")
        exchange.bind("x2")
        watcher = net.connect()
        self.watchers: list[Receiver] = [
            watcher.receiver(name, credit=10_000) for name in ("q1", "q2", "x1", "x2", "s")
        ]
        self.watchers += [net.connect().receiver("t", credit=10_000) for _ in range(2)]
        feeder = net.connect()
        self.jobs = [b"job %d" % i for i in range(JOBS)]
        for i, job in enumerate(self.jobs):
            feeder.sender(SOURCES[i % 2]).send(job)
        self.committed: dict[int, tuple[int, int, int]] = {}
        # How often the bounded queue has been deleted.
        self.epoch = 0
        self.finished: Counter[bytes] = Counter()
        self.numbers = 0
        self.open: list[Model] = []
        self.held: list[tuple[Receiver, IncomingDelivery, Model | None]] = []
        self.connect()

    def connect(self) -> None:
        """A new client, with several sessions and control links."""
        self.client: Client = self.net.connect()
        sessions = [self.client.session, self.client.begin()]
        self.controllers = [Controller(self.client, session=session) for session in sessions]
        self.senders: dict[str, list[Sender]] = {
            name: [self.client.sender(name, session=session) for session in sessions]
            for name in TARGETS
        }
        self.receivers = [
            self.client.receiver(name, session=session, credit=0)
            for name in SOURCES
            for session in sessions
        ]

    # -- steps -----------------------------------------------------------------------------

    def declare(self) -> None:
        if len(self.open) < 6:
            self.numbers += 1
            controller = self.random.choice(self.controllers)
            self.open.append(Model(self.numbers, controller.declare(), controller))

    def post(self) -> None:
        if self.open:
            model = self.random.choice(self.open)
            name = self.random.choice(list(TARGETS))
            sender = self.random.choice(self.senders[name])
            if sender.link.credit:
                body = b"%d" % model.number
                post_sections(
                    sender,
                    model.txn,
                    Properties(subject=name),
                    Data(value=body),
                    settled=self.random.random() < 0.3,
                )
                if name == "tight":
                    model.bound += 1
                else:
                    model.pieces += TARGETS[name]

    def take(self) -> None:
        """Acquire a job, in a transaction or outside of all."""
        receiver = self.random.choice(self.receivers)
        model = self.random.choice(self.open) if self.open and self.random.random() < 0.5 else None
        if model is None:
            receiver.link.set_credit(1, drain=True, properties={"txn-id": None})
            self.net.run()
        else:
            acquire(receiver, model.txn, 1, drain=True)
        self.held += [(receiver, delivery, model) for delivery in receiver.take()]

    def retire(self) -> None:
        if self.open and self.held:
            at = self.random.randrange(len(self.held))
            receiver, delivery, acquirer = self.held[at]
            model = acquirer or self.random.choice(self.open)
            if model.over:
                return
            del self.held[at]
            outcome = self.random.choice([Accepted(), Accepted(), Rejected()])
            settled = self.random.random() < 0.5
            retire(receiver, model.txn, delivery, outcome=outcome, settled=settled)
            model.jobs.append(text(delivery.payload))

    def release(self) -> None:
        """Give back what was acquired outside of transactions."""
        for held in list(self.held):
            if held[2] is None:
                self.held.remove(held)
                held[0].settle(None, held[1])

    def discharge(self) -> None:
        if self.open:
            model = self.random.choice(self.open)
            fail = self.random.random() < 0.3
            delivery = model.controller.discharge(model.txn, fail)
            if not fail and isinstance(delivery.remote_state, Accepted):
                self.committed[model.number] = (model.pieces, model.bound, self.epoch)
                self.finished.update(model.jobs)
            self.close_model(model)

    def close_model(self, model: Model) -> None:
        model.over = True
        if model in self.open:
            self.open.remove(model)
        # What was acquired in it and not retired is held like others now, or is not ours.
        self.held = [
            (receiver, delivery, None if owner is model else owner)
            for receiver, delivery, owner in self.held
            if owner is not model or not _is_lost(delivery)
        ]

    def let_time_pass(self) -> None:
        self.net.advance(self.random.choice([1, 5, 20]))

    def drop_control(self) -> None:
        if self.random.random() < 0.3:
            at = self.random.randrange(len(self.controllers))
            gone = self.controllers[at]
            gone.close(self.random.random() < 0.5)
            self.controllers[at] = Controller(self.client)
            for model in [one for one in self.open if one.controller is gone]:
                self.close_model(model)

    def drop_links(self) -> None:
        if self.random.random() < 0.3:
            at = self.random.randrange(len(self.receivers))
            gone = self.receivers[at]
            gone.close()
            self.held = [one for one in self.held if one[0] is not gone]
            self.receivers[at] = self.client.receiver(SOURCES[at // 2], credit=0)
            name = self.random.choice(list(TARGETS))
            self.senders[name][0].close()
            self.senders[name][0] = self.client.sender(name)

    def lose_connection(self) -> None:
        if self.random.random() < 0.15:
            self.client.lose()
            for model in self.open:
                model.over = True
            self.open = []
            self.held = []
            self.connect()

    def delete_node(self) -> None:
        """What is bound goes, and comes again: those who have posted there cannot commit."""
        if self.random.random() < 0.1:
            self.epoch += 1
            self.net.space.remove(self.net.queue("tight"))
            self.net.declare("tight", QueuePolicy(max_length=6, overflow="reject"))
            self.senders["tight"] = [self.client.sender("tight") for _ in range(2)]

    def step(self) -> None:
        self.random.choice(
            [
                self.declare,
                self.declare,
                self.post,
                self.post,
                self.post,
                self.take,
                self.take,
                self.retire,
                self.retire,
                self.release,
                self.discharge,
                self.discharge,
                self.let_time_pass,
                self.drop_control,
                self.drop_links,
                self.lose_connection,
                self.delete_node,
            ]
        )()
        self.check()

    # -- what must be true -----------------------------------------------------------------

    def count(self) -> Counter[int]:
        """How many pieces of each transaction are visible, what waits in the bound queue too."""
        pieces: Counter[int] = Counter()
        for watcher in self.watchers:
            pieces.update(int(text(d.payload)) for d in watcher.deliveries)
        return pieces

    def check(self) -> None:
        browser = self.watchers[0].client.receiver("tight", mode="copy", credit=100)
        waiting = Counter(int(body) for body in browser.bodies())
        browser.close()
        pieces = self.count()
        for number in set(pieces) | set(waiting):
            assert number in self.committed, f"transaction {number} is seen and not committed"
        for number, (expected, bound, epoch) in self.committed.items():
            assert pieces[number] == expected
            # What was in the bounded queue has gone with it, if it has been deleted since.
            assert waiting[number] == (bound if epoch == self.epoch else 0)
        queue = self.net.queue("tight")
        assert queue.message_count() <= 6

    def finish(self) -> None:
        """End everything, and count the jobs."""
        self.client.lose()
        for watcher in self.watchers:
            watcher.take()
        left: Counter[bytes] = Counter()
        reader = self.net.connect()
        for name in SOURCES:
            left.update(reader.receiver(name, credit=1000).bodies())
        # Each is in its queue, or was retired by a transaction that was committed; none is both.
        assert left + self.finished == Counter(self.jobs)
        for name in ("q1", "q2", "x1", "x2", "tight", *SOURCES):
            queue = self.net.queue(name)
            assert queue.lifecycle.reserved == queue.lifecycle.reserved_bytes == 0
        assert len(self.net.broker.timers) == 0


@pytest.mark.parametrize("seed", range(60))
def test_all_or_nothing(seed: int) -> None:
    world = World(seed)
    for _ in range(150):
        world.step()
    world.finish()
