"""Counters against an own count: through traffic, transactions, expiry, overflow and restarts.

What Prometheus would make of them is computed as Prometheus does it: a counter that is below what
it was has begun again at 0.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from random import Random
from typing import Final

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from ferrymq_broker.monitoring.http import MonitoringServer
from ferrymq_broker.monitoring.metrics import metric_name
from ferrymq_broker.monitoring.node_totals import COUNTERS
from ferrymq_broker.monitoring.readiness import Readiness
from ferrymq_broker.nodes.exchanges.exchange import Exchange
from ferrymq_broker.values.policy import ExchangePolicy, QueuePolicy, StreamPolicy, TopicPolicy
from ferrymq_types.messaging import Accepted, Data, Header, Modified, Rejected, Released
from ferrymq_types.transport import SenderSettleMode
from ferrymq_types.unions import Outcome
from tests.broker.harness import Network, Receiver
from tests.broker.recovery.kit import send, subscribe
from tests.broker.stores import ManualStore
from tests.broker.transactions.kit import Controller, post_sections, retire

# The type and the address of what counts.
Place = tuple[str, str]
# A counter of one type and virtual host.
Series = tuple[str, ...]

WORK: Final = ("queue", "work")
DEAD: Final = ("queue", "dead")
FULL: Final = ("queue", "full")
TEMP: Final = ("queue", "temp")
NEWS: Final = ("topic", "news")
LOG: Final = ("stream", "log")
KEPT: Final = ("subscription", "news::reader/kept")
SHARED: Final = ("subscription", "news::both")
# All that have a random name, together.
OWN: Final = ("subscription", "news::~")
ROOM: Final = 6
OUTCOMES: Final[dict[str, Outcome]] = {
    "accepted": Accepted(),
    "released": Released(),
    "modified": Modified(delivery_failed=True),
    "rejected": Rejected(),
}


class Prometheus:
    """Scrapes the broker; knows by how much every counter has increased since the beginning."""

    def __init__(self, net: Network) -> None:
        self.net = net
        self.increase: dict[Series, float] = defaultdict(float)
        self.sums: dict[Series, float] = {}
        self.nodes: dict[Series, float] = {}
        self._server: MonitoringServer | None = None

    async def start(self) -> None:
        """Begin with the broker that there is now."""
        if self._server is not None:
            await self._server.close()
        ready = Readiness(True, "")
        self._server = MonitoringServer(self.net.broker, "http://127.0.0.1:0", lambda: ready)
        self._server.watch()
        await self._server.start()

    async def scrape(self) -> None:
        """Read both sets."""
        sums = await self._read("/metrics")
        for series, value in sums.items():
            before = self.sums.get(series, 0)
            self.increase[series] += value - before if value >= before else value
        self.sums = sums
        self.nodes = await self._read("/metrics/nodes")

    async def _read(self, path: str) -> dict[Series, float]:
        assert self._server is not None
        async with aiohttp.ClientSession() as session, session.get(self._server.url + path) as read:
            text = await read.text()
        return {
            (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name.startswith(("ferrymq_messages_", "ferrymq_node_available"))
        }

    async def close(self) -> None:
        """It has seen enough."""
        if self._server is not None:
            await self._server.close()


class World:
    """A broker, and what its clients know of what happened."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.net = Network(store=ManualStore())
        # Of the present process by place; of all together by type.
        self.counts: dict[Place, Counter[str]] = defaultdict(Counter)
        self.totals: dict[str, Counter[str]] = defaultdict(Counter)
        self.present: dict[str, Counter[str]] = defaultdict(Counter)
        self.waiting: Counter[Place] = Counter()
        self.own: list[tuple[Receiver, int]] = []
        space = self.net.space
        for place in (WORK, TEMP):
            self.declare_queue(place)
        space.create("dead", QueuePolicy())
        space.create("full", QueuePolicy(max_length=2))
        behind = QueuePolicy(max_length=ROOM, overflow="dead-letter", dead_letter="dead")
        space.create("news", TopicPolicy(subscription=behind))
        space.create("log", StreamPolicy())
        exchange = space.create("ex", ExchangePolicy(type="direct"))
        assert isinstance(exchange, Exchange)
        exchange.bind("work", "work")
        for place in (KEPT, SHARED):
            self.attach(place).close(closed=False)

    def declare_queue(self, place: Place) -> None:
        self.net.space.create(place[1], QueuePolicy(dead_letter="dead"))

    # -- the own count ---------------------------------------------------------------------

    def count(self, place: Place, name: str, by: int = 1) -> None:
        self.counts[place][name] += by
        self.present[place[0]][name] += by
        self.totals[place[0]][name] += by

    def come(self, place: Place, by: int = 1) -> None:
        """So many messages are taken in."""
        for _ in range(by):
            self.count(place, "published")
            if place == NEWS:
                for subscription in self.subscriptions():
                    self.come(subscription)
                for number, (receiver, waiting) in enumerate(self.own):
                    self.count(OWN, "published")
                    self.own[number] = (receiver, waiting + 1)
                    if waiting == ROOM:
                        self.own[number] = (receiver, ROOM)
                        self.drop_head(OWN)
                continue
            self.waiting[place] += 1
            if place in (KEPT, SHARED) and self.waiting[place] > ROOM:
                self.waiting[place] -= 1
                self.drop_head(place)

    def drop_head(self, place: Place) -> None:
        self.count(place, "overflowed")
        self.die(place)

    def die(self, place: Place, by: int = 1) -> None:
        if place != DEAD:
            self.count(place, "dead-lettered", by)
            self.come(DEAD, by)
        else:
            self.count(place, "dropped", by)

    def subscriptions(self) -> list[Place]:
        return [place for place in (KEPT, SHARED) if place in self.counts]

    # -- what happens ------------------------------------------------------------------------

    def attach(self, place: Place, credit: int = 0, presettled: bool = False) -> Receiver:
        self.counts[place].update()
        net = self.net
        if place == KEPT:
            return subscribe(net.connect(container_id="reader"), "news", "kept", credit=credit)
        if place == SHARED:
            wishes = ["shared", "global"]
            name = f"both|{self.random.random()}"
            return subscribe(net.connect(), "news", name, capabilities=wishes, credit=credit)
        mode = SenderSettleMode.SETTLED if presettled else SenderSettleMode.MIXED
        return net.connect().receiver(place[1], credit=credit, snd=mode)

    def publish(self) -> None:
        place = self.random.choice([WORK, TEMP, NEWS, NEWS, LOG])
        number = self.random.randint(1, 4)
        send(self.net.connect().sender(place[1]), *[b"x"] * number)
        self.come(place, number)

    def publish_by_exchange(self) -> None:
        sender = self.net.connect().sender("ex::work")
        send(sender, b"x", b"y")
        self.count(("exchange", "ex"), "published", 2)
        self.come(WORK, 2)
        send(self.net.connect().sender("ex::nowhere"), b"z")
        self.count(("exchange", "ex"), "published")
        self.count(("exchange", "ex"), "unroutable")

    def publish_too_much(self) -> None:
        sent = send(self.net.connect().sender("full"), b"x", b"y")
        taken = sum(isinstance(one.remote_state, Accepted) for one in sent)
        self.come(FULL, taken)
        self.count(FULL, "refused", 2 - taken)

    def take(self) -> None:
        place = self.random.choice([WORK, TEMP, DEAD, FULL, KEPT, SHARED])
        credit = min(self.waiting[place], self.random.randint(1, 3))
        if not credit:
            return
        name = self.random.choice(list(OUTCOMES))
        receiver = self.attach(place, credit)
        self.count(place, "delivered", len(receiver.deliveries))
        assert len(receiver.deliveries) == credit
        receiver.settle(OUTCOMES[name])
        receiver.close(closed=False)
        self.count(place, name, credit)
        if name in ("accepted", "rejected"):
            self.waiting[place] -= credit
        if name == "rejected":
            if place in (DEAD, FULL):
                self.count(place, "dropped", credit)
            else:
                self.die(place, credit)

    def take_settled(self) -> None:
        credit = min(self.waiting[WORK], 2)
        if credit:
            self.attach(WORK, credit, presettled=True).close()
            self.count(WORK, "delivered", credit)
            self.count(WORK, "accepted", credit)
            self.waiting[WORK] -= credit

    def take_own(self) -> None:
        if not self.own:
            return
        number = self.random.randrange(len(self.own))
        receiver, waiting = self.own[number]
        receiver.credit(waiting)
        self.count(OWN, "delivered", waiting)
        self.count(OWN, "accepted", waiting)
        assert len(receiver.deliveries) == waiting
        receiver.settle(Accepted())
        self.own[number] = (receiver, 0)

    def expire(self) -> None:
        place = self.random.choice([WORK, NEWS])
        sender = self.net.connect().sender(place[1])
        send(sender, b"soon", b"over", ttl=1000)
        self.come(place, 2)
        self.net.advance(2)
        holders = [WORK] if place == WORK else self.subscriptions()
        for holder in holders:
            self.waiting[holder] -= 2
            self.count(holder, "expirations", 2)
            self.die(holder, 2)
        if place == NEWS:
            for number, (receiver, waiting) in enumerate(self.own):
                self.own[number] = (receiver, waiting - 2)
                self.count(OWN, "expirations", 2)
                self.die(OWN, 2)

    def transact(self) -> None:
        client = self.net.connect()
        controller = Controller(client)
        txn = controller.declare()
        place = self.random.choice([WORK, NEWS, LOG])
        for body in (b"a", b"b"):
            sections = (Header(durable=True), Data(value=body))
            post_sections(client.sender(place[1]), txn, *sections)
        credit = min(self.waiting[KEPT], 2)
        receiver = self.attach(KEPT, 0)
        receiver.close(closed=False)
        receiver = subscribe(receiver.client, "news", "kept", credit=credit)
        # The transaction is that of a session: what is taken has one of its own.
        other = Controller(receiver.client)
        taking = other.declare()
        taken = list(receiver.deliveries)
        retire(receiver, taking, *taken)
        self.count(KEPT, "delivered", credit)
        if self.random.random() < 0.5:
            other.commit(taking)
            controller.commit(txn)
            self.count(KEPT, "accepted", credit)
            self.waiting[KEPT] -= credit
            self.come(place, 2)
        else:
            controller.roll_back(txn)
            other.roll_back(taking)
            if credit:
                receiver.settle(Released())
            self.count(KEPT, "released", credit)
        receiver.close(closed=False)

    def transact_in_vain(self) -> None:
        """One message finds no room, so none is taken in."""
        while self.waiting[FULL] < 2:
            send(self.net.connect().sender("full"), b"x")
            self.come(FULL)
        client = self.net.connect()
        controller = Controller(client)
        txn = controller.declare()
        post_sections(client.sender("work"), txn, Header(durable=True), Data(value=b"a"))
        post_sections(client.sender("full"), txn, Header(durable=True), Data(value=b"b"))
        self.count(FULL, "refused")
        post_sections(client.sender("ex::nowhere"), controller.declare(), Data(value=b"c"))
        self.count(("exchange", "ex"), "published")
        self.count(("exchange", "ex"), "unroutable")
        controller.refused(txn)

    def subscribe_own(self) -> None:
        receiver = self.net.connect().receiver("news")
        self.counts[OWN].update()
        self.own.append((receiver, 0))

    def unsubscribe_own(self) -> None:
        if self.own:
            receiver, _ = self.own.pop()
            receiver.close()

    def unsubscribe(self) -> None:
        """A durable one goes for good, and comes again as another one."""
        self.attach(KEPT).close(closed=True)
        self.waiting[KEPT] = 0
        self.counts[KEPT].clear()
        self.attach(KEPT).close(closed=False)

    def delete_queue(self) -> None:
        """While a consumer holds some of its messages."""
        credit = min(self.waiting[TEMP], 2)
        fate = self.random.choice([Released(), Rejected()])
        if credit:
            client = self.net.connect()
            receiver = client.receiver("temp", credit=credit, default_outcome=fate)
            self.count(TEMP, "delivered", len(receiver.deliveries))
            if isinstance(fate, Released):
                self.count(TEMP, "released", credit)
            else:
                self.count(TEMP, "rejected", credit)
                self.die(TEMP, credit)
        self.net.broker.begin_pass(self.net.now)
        self.net.space.remove(self.net.queue("temp"))
        self.declare_queue(TEMP)
        self.net.finish()
        self.waiting[TEMP] = 0
        self.counts[TEMP].clear()

    def restart(self) -> None:
        self.net.run()
        self.net.restart()
        for count in (*self.counts.values(), *self.present.values()):
            count.clear()
        self.own.clear()


@pytest.mark.parametrize("seed", range(4))
async def test_counters_are_what_the_clients_counted(seed: int) -> None:
    world = World(seed)
    steps = [
        *[world.publish] * 4,
        world.publish_by_exchange,
        world.publish_too_much,
        *[world.take] * 4,
        world.take_settled,
        *[world.take_own] * 2,
        world.expire,
        *[world.transact] * 2,
        world.transact_in_vain,
        *[world.subscribe_own] * 2,
        world.unsubscribe_own,
        world.unsubscribe,
        world.delete_queue,
        world.restart,
    ]
    prometheus = Prometheus(world.net)
    await prometheus.start()
    await prometheus.scrape()
    done: list[str] = []
    for _ in range(120):
        step = world.random.choice(steps)
        done.append(step.__name__)
        step()
        if step == world.restart:
            await prometheus.start()
        await prometheus.scrape()
        compare(world, prometheus, ", ".join(done[-3:]))
    await prometheus.close()


def compare(world: World, prometheus: Prometheus, done: str) -> None:
    """Compare all counters with the own count, which is of those that something has happened to."""
    for kind, expected in world.present.items():
        for name in COUNTERS:
            series = (f"ferrymq_messages_{metric_name(name)}_total", kind, "default")
            assert prometheus.sums.get(series, 0) == expected[name], (series, done)
            assert prometheus.increase[series] == world.totals[kind][name], (series, done)
    for (kind, address), expected in world.counts.items():
        for name in COUNTERS:
            series = (f"ferrymq_messages_{metric_name(name)}_total", address, kind, "default")
            assert prometheus.nodes.get(series, 0) == expected[name], (series, done)
    for place in world.subscriptions():
        series = ("ferrymq_node_available", place[1], place[0], "default")
        assert prometheus.nodes[series] == world.waiting[place]
