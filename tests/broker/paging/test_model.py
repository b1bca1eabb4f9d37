"""A broker that pages everything out beside one that does not: clients see no difference.

Both get the same messages and the same from their clients; after every step all deliveries are
compared, byte by byte, and what the pager counts is compared with what is there.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ferrymq_broker.management.sliced_query import finish
from ferrymq_broker.nodes.entry import REMOVED, RUN, Entry
from ferrymq_broker.nodes.exchanges.exchange import Exchange
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.values.policy import ExchangePolicy, QueuePolicy
from ferrymq_types.messaging import (
    Accepted,
    ApplicationProperties,
    Data,
    Header,
    MessageAnnotations,
    Modified,
    Properties,
    Rejected,
    Released,
)
from tests.broker.harness import Client, Network, Receiver, Sender
from tests.broker.paging.paged import DictPages, PagedNetwork
from tests.broker.queues.links import consume
from tests.broker.stores import ManualStore

QUEUES = ("orders", "urgent", "left", "right", "dead", "last")
READERS = (
    ("orders", None),
    ("orders", "colour = 'red'"),
    ("urgent", None),
    ("left", None),
    ("right", "colour <> 'blue'"),
    ("dead", None),
    ("last", None),
    ("urgent", "colour = 'blue'"),
)
# Those who look on, for as long as their connection is there.
BROWSERS = (("urgent", None), ("orders", "colour = 'red'"), ("dead", None))
OUTCOMES = {
    "accept": Accepted(),
    "reject": Rejected(),
    "release": Released(),
    "fail": Modified(delivery_failed=True),
    "annotate": Modified(message_annotations={"x-opt-note": "n" * 50}),
}


class World:
    """One broker, the same nodes and links as the other."""

    def __init__(self, net: Network) -> None:
        self.net = net
        net.declare("orders", QueuePolicy(dead_letter="dead", delivery_limit=2, max_length=30))
        net.declare("urgent", QueuePolicy(priorities=10, dead_letter="dead", persist=True))
        net.declare("left", QueuePolicy(overflow="dead-letter", max_length=5, dead_letter="dead"))
        net.declare("right", QueuePolicy(message_ttl=20_000, groups=True))
        net.declare("dead", QueuePolicy())
        net.declare("last", QueuePolicy(last_value_key="colour"))
        exchange = net.space.create("fan", ExchangePolicy(type="fanout"))
        assert isinstance(exchange, Exchange)
        exchange.bind("left")
        exchange.bind("right")
        exchange.bind("dead")
        self.connect()

    def connect(self) -> None:
        self.client: Client = self.net.connect()
        self.senders: dict[str, Sender] = {
            name: self.client.sender(name) for name in ("orders", "urgent", "fan", "last")
        }
        self.receivers: list[Receiver] = [
            consume(self.client, address, selector=selector) for address, selector in READERS
        ]
        self.receivers += [
            consume(self.client, address, selector=selector, mode="copy")
            for address, selector in BROWSERS
        ]

    def entries(self) -> list[tuple[Queue, Entry]]:
        found = []
        for name in QUEUES:
            queue = self.net.queue(name)
            for priority_level in queue.entries.priority_levels:
                found += [(queue, entry) for entry in priority_level.all()]
        return found

    def figures(self) -> list[tuple[int, int, int, int]]:
        queues = [self.net.queue(name) for name in QUEUES]
        return [(int(q.available), int(q.acquired), int(q.bytes), int(q.room())) for q in queues]


class PagingMachine(RuleBasedStateMachine):
    @initialize(limit=st.sampled_from((0, 300, 2000)))
    def begin(self, limit: int) -> None:
        self.paged = PagedNetwork(limit=limit)
        self.worlds = (World(Network(store=ManualStore())), World(self.paged))
        self.number = 0

    # -- what clients do ---------------------------------------------------------------------

    @rule(
        to=st.sampled_from(("orders", "orders", "urgent", "fan", "fan", "last")),
        durable=st.booleans(),
        priority=st.integers(0, 9),
        ttl=st.sampled_from((None, None, 3000)),
        delay=st.sampled_from((None, None, None, 2000)),
        colour=st.sampled_from(("red", "blue")),
        size=st.integers(0, 400),
    )
    def send(
        self,
        to: str,
        durable: bool,
        priority: int,
        ttl: int | None,
        delay: int | None,
        colour: str,
        size: int,
    ) -> None:
        self.number += 1
        for world in self.worlds:
            sections = [
                Header(durable=durable, priority=priority, ttl=ttl),
                Properties(message_id=self.number, group_id=colour),
                ApplicationProperties(value={"colour": colour}),
                Data(value=b"%d:" % self.number + b"x" * size),
            ]
            if delay is not None:
                annotations = MessageAnnotations(value={"x-opt-delivery-delay": delay})
                sections.insert(1, annotations)
            world.senders[to].send_sections(*sections)

    @rule(reader=st.integers(0, len(READERS) + len(BROWSERS) - 1), credit=st.integers(0, 10))
    def allow(self, reader: int, credit: int) -> None:
        for world in self.worlds:
            world.receivers[reader].credit(credit)

    @rule(
        reader=st.integers(0, len(READERS) - 1),
        at=st.integers(0, 10),
        outcome=st.sampled_from(sorted(OUTCOMES)),
    )
    def settle(self, reader: int, at: int, outcome: str) -> None:
        for world in self.worlds:
            receiver = world.receivers[reader]
            if receiver.deliveries:
                delivery = receiver.deliveries.pop(at % len(receiver.deliveries))
                receiver.settle(OUTCOMES[outcome], delivery)

    @rule(seconds=st.sampled_from((0.5, 2.0, 10.0)))
    def wait(self, seconds: float) -> None:
        for world in self.worlds:
            world.net.advance(seconds)

    @rule(queue=st.sampled_from(QUEUES))
    def browse(self, queue: str) -> None:
        seen = []
        for world in self.worlds:
            receiver = consume(world.client, queue, 1000, mode="copy")
            seen.append([delivery.payload for delivery in receiver.deliveries])
            receiver.close()
        assert seen[0] == seen[1]

    @rule(count=st.integers(1, 5))
    def move_on(self, count: int) -> None:
        moved = []
        for world in self.worlds:
            broker = world.net.broker
            broker.begin_pass(world.net.now)
            moved.append(finish(world.net.queue("dead").move(world.net.queue("orders"), count))[0])
            broker.finish_pass()
            world.net.run()
        assert moved[0] == moved[1]

    @rule(queue=st.sampled_from(QUEUES))
    def purge(self, queue: str) -> None:
        gone = []
        for world in self.worlds:
            world.net.broker.begin_pass(world.net.now)
            gone.append(int(world.net.queue(queue).purge().count))
            world.net.finish()
        assert gone[0] == gone[1]

    @rule()
    def lose_connection(self) -> None:
        for world in self.worlds:
            world.client.lose()
            world.connect()

    @precondition(lambda self: self.number > 3)
    @rule(stopped=st.booleans())
    def restart(self, stopped: bool) -> None:
        for world in self.worlds:
            if stopped:
                # A lost link counts as a failed delivery, and only a broker that stops sees it.
                world.client.lose()
                if isinstance(world.net, PagedNetwork):
                    world.net.stop()
            world.net.restart()
            world.connect()

    @rule()
    def tidy(self) -> None:
        for world in self.worlds:
            world.net.broker.tidy()
            world.net.run()

    # -- what has to be so -------------------------------------------------------------------

    @invariant()
    def clients_see_the_same(self) -> None:
        if not hasattr(self, "worlds"):
            return
        plain, paged = self.worlds
        for one, other in zip(plain.receivers, paged.receivers, strict=True):
            assert [d.payload for d in one.deliveries] == [d.payload for d in other.deliveries]
        assert plain.figures() == paged.figures()

    @invariant()
    def lanes_are_in_order(self) -> None:
        if not hasattr(self, "worlds"):
            return
        for name in QUEUES:
            queue = self.worlds[1].net.queue(name)
            for priority_level in queue.entries.priority_levels:
                nodes: list[Entry] = []
                node = priority_level.first
                while node is not None:
                    assert node.prev is (nodes[-1] if nodes else None) and node.state != REMOVED
                    if node.state == RUN:
                        assert (
                            priority_level.runs is not None
                            and priority_level.runs.of(node).count() > 0
                        )
                    nodes.append(node)
                    node = node.next
                assert priority_level.last is (nodes[-1] if nodes else None)
                sequences = [int(entry.sequence) for entry in priority_level.all()]
                assert sequences == sorted(set(sequences))
                assert queue.entries.pointed(priority_level) <= set(
                    nodes
                ), "something points to what is not there"
            entries = [
                entry
                for priority_level in queue.entries.priority_levels
                for entry in priority_level.all()
            ]
            assert queue.available + queue.acquired == len(entries)
            assert queue.bytes == sum(int(entry.size) for entry in entries)

    @invariant()
    def the_pager_counts_right(self) -> None:
        if not hasattr(self, "worlds"):
            return
        net = self.paged
        entries = self.worlds[1].entries()
        resident: dict[int, int] = {}
        out: dict[object, int] = {}
        for _, entry in entries:
            if entry.is_out():
                # A blank stands for many, a message that several have for itself.
                alone = entry.message.header_end < 0
                out[entry if alone else entry.message] = int(entry.size)
            else:
                resident[id(entry.message)] = int(entry.size)
        for name in QUEUES:
            for scheduled in net.queue(name).lifecycle.list_scheduled():
                if len(scheduled.message.payload) == scheduled.size:
                    resident[id(scheduled.message)] = int(scheduled.size)
                else:
                    out[scheduled.message] = int(scheduled.size)
        pager = net.pager
        assert (pager.messages, pager.bytes) == (len(out), sum(out.values()))
        assert net.broker.agenda.held == sum(resident.values())
        emptied = [one for one in out if not isinstance(one, Entry)]
        assert net.broker.agenda.emptied == len(emptied)
        pages = net.pages
        assert isinstance(pages, DictPages)
        for name in QUEUES:
            queue = net.queue(name)
            count = sum(entry.message.header_end < 0 for other, entry in entries if other is queue)
            assert (0 if queue.entries.paging is None else queue.entries.paging.count) == count
        pager.flush()
        blanks = [e for _, e in entries if e.message.header_end == -2]
        assert len(pages.pages) <= len(blanks) + len(emptied)

    @invariant()
    def nothing_is_in_memory_that_need_not_be(self) -> None:
        if hasattr(self, "worlds") and self.paged.limit == 0:
            self.paged.settle()
            # What is scheduled stays.
            scheduled = {
                id(one.message): int(one.size)
                for name in QUEUES
                for one in self.paged.queue(name).lifecycle.list_scheduled()
            }
            assert self.paged.broker.agenda.held <= sum(scheduled.values())


PagingMachine.TestCase.settings = settings(max_examples=12, stateful_step_count=25, deadline=None)
TestPaging = PagingMachine.TestCase
