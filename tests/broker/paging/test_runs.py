"""Runs: what is in memory of messages that are out, and that nobody sees a difference."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator, Sequence

import pytest

from ferrymq_broker.filters.selector import selector
from ferrymq_broker.management.sliced_query import finish
from ferrymq_broker.nodes.consumer import Consumer
from ferrymq_broker.nodes.entry import RUN
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.nodes.queues.selection import MessageSelection
from ferrymq_broker.recovery.paged_out import describe_paged_out
from ferrymq_broker.store.records import Brief, Part
from ferrymq_broker.store.tables import ENTRY
from ferrymq_broker.values.policy import QueuePolicy
from ferrymq_types.messaging import (
    Accepted,
    ApplicationProperties,
    Data,
    Header,
    Properties,
    Released,
)
from tests.broker.harness import Sender
from tests.broker.paging.paged import DictPages, PagedNetwork
from tests.broker.queues.links import consume
from tests.broker.stores import ManualStore

BODY = b"x" * 100


def send(
    sender: Sender, count: int, *, durable: bool = False, ttls: Sequence[int | None] = (None,)
) -> None:
    """Messages with bodies that tell them apart, every third one red."""
    for number in range(count):
        sender.send_sections(
            Header(durable=durable, ttl=ttls[number % len(ttls)]),
            ApplicationProperties(value={"colour": "blue" if number % 3 else "red"}),
            Data(value=b"%06d" % number + BODY),
        )


def numbers(bodies: list[bytes]) -> list[int]:
    return [int(body[:6]) for body in bodies]


def places(queue: Queue) -> tuple[int, int]:
    """How many entries and how many runs there are in the lanes of a queue."""
    entries = runs = 0
    for priority_level in queue.entries.priority_levels:
        node = priority_level.first
        while node is not None:
            if node.state == RUN:
                runs += 1
            else:
                entries += 1
            node = node.next
    return entries, runs


class NoPages(DictPages):
    """Forgets what it is given."""

    def put(self, pairs: Sequence[tuple[bytes, bytes]]) -> None:
        pass


def test_a_message_that_is_out_takes_at_most_32_bytes() -> None:
    # Enough that the few that are entries, at the end, make no difference.
    count = 10_000
    net = PagedNetwork(limit=0, least=8)
    net.pager._pages = NoPages()
    queue = net.declare("q")
    client = net.connect()
    sender = client.sender("q")
    send(sender, 1000)
    net.pager.high = net.pager.low = 0
    net.settle()
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(5):
            net.pager.high = net.pager.low = 1 << 40
            send(sender, count // 5, ttls=(None, 1_000_000))
            net.pager.high = net.pager.low = 0
            net.settle()
            # What the client remembers is not the broker's.
            client.events.clear()
        net.settle()
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert queue.available == net.pager.messages == count + 1000
    assert (after - before) / count <= 32
    entries, runs = places(queue)
    assert entries <= 2 and runs <= 12


def test_a_restart_makes_runs_and_no_entries() -> None:
    net = PagedNetwork(limit=0)
    net.declare("q", QueuePolicy(priorities=10, message_ttl=60_000))
    sender = net.connect().sender("q")
    for priority in (2, 7, 4) * 700:
        sender.send_sections(Header(durable=True, priority=priority), Data(value=BODY))
    net.restart()
    entries, runs = places(net.queue("q"))
    # At the end of each lane there are some that would have become a run with those behind them.
    assert entries <= 3 * 86 and 3 <= runs <= 12
    assert len(net.connect().receiver("q", credit=5000).deliveries) == 2100
    net.advance(61)
    assert net.queue("q").message_count() == 2100, "they are the consumer's"


class ReadingStore(ManualStore):
    """Counts the entries of queues that a start looks at."""

    read = 0

    def scan_parts(self, table: int, brief: Brief) -> Iterator[Part]:
        for part in super().scan_parts(table, brief):
            self.read += table == ENTRY
            yield part


def stopped(net: PagedNetwork) -> int:
    """Stop the broker in good order and start it; how many entries the start has looked at."""
    store = net.store
    assert isinstance(store, ReadingStore)
    net.stop()
    store.read = 0
    net.restart()
    return store.read


def test_a_start_after_a_stop_passes_over_what_is_in_runs() -> None:
    net = PagedNetwork(limit=0, least=8, store=ReadingStore())
    net.declare("q")
    send(net.connect().sender("q"), 3000, durable=True)
    assert stopped(net) <= 8
    # A third time, with what has come and gone meanwhile.
    client = net.connect()
    receiver = client.receiver("q", credit=1500)
    assert numbers(receiver.bodies()) == list(range(1500))
    receiver.settle(Accepted(), *receiver.take())
    send(client.sender("q"), 100, durable=True)
    assert stopped(net) <= 100
    receiver = net.connect().receiver("q", credit=5000)
    assert numbers(receiver.bodies()) == [*range(1500, 3000), *range(100)]
    assert all(delivery.remote_state is None for delivery in receiver.deliveries)
    receiver.settle(Accepted(), *receiver.take())
    assert net.queue("q").message_count() == net.pager.messages == 0
    assert net.store is not None and not [key for key in net.store.records if key[0] == ENTRY]


def test_levels_and_gaps_of_what_is_in_runs() -> None:
    net = PagedNetwork(limit=0, least=8, store=ReadingStore())
    net.declare("q", QueuePolicy(priorities=10))
    client = net.connect()
    sender = client.sender("q")
    for number in range(2000):
        sender.send_sections(
            Header(durable=True, priority=(2, 7, 4)[number % 3]),
            ApplicationProperties(value={"colour": "red" if number // 100 % 2 else "blue"}),
            Data(value=b"%06d" % number),
        )
    # Every other hundred is taken out again.
    receiver = consume(client, "q", 5000, selector="colour = 'red'")
    while net.queue("q").message_count() > 1000:
        receiver.settle(Accepted(), *receiver.take())
        # A filter has so much time in a pass.
        net.advance(0.1)
    # What a filter was tried on is in no run before a start.
    net.restart()
    assert stopped(net) <= 3 * 86, "what is at the ends of lanes"
    rest = [number for number in range(2000) if not number // 100 % 2]
    expected = [number for kind in (1, 2, 0) for number in rest if number % 3 == kind]
    receiver = net.connect().receiver("q", credit=5000)
    assert numbers(receiver.bodies()) == expected


def test_only_what_a_start_would_find_comes_back_in_runs() -> None:
    """What is not durable is gone, and what expires is watched."""
    net = PagedNetwork(limit=0, least=8, store=ReadingStore())
    net.declare("q")
    sender = net.connect().sender("q")
    send(sender, 500, durable=True)
    send(sender, 500)
    send(sender, 500, durable=True, ttls=(60_000,))
    assert stopped(net) >= 500
    assert net.queue("q").available == 1000
    net.advance(61)
    receiver = net.connect().receiver("q", credit=5000)
    assert numbers(receiver.bodies()) == list(range(500))


def test_a_queue_that_has_to_see_its_messages_sees_them_all_at_a_start() -> None:
    net = PagedNetwork(limit=0, least=8, store=ReadingStore())
    net.declare("q", QueuePolicy(message_ttl=60_000))
    send(net.connect().sender("q"), 500, durable=True)
    assert stopped(net) == 500


def test_runs_of_another_batch_are_not_taken() -> None:
    net = PagedNetwork(limit=0, least=8, store=ReadingStore())
    net.declare("q")
    client = net.connect()
    send(client.sender("q"), 500, durable=True)
    net.settle()
    store = net.store
    assert isinstance(store, ReadingStore)
    left = describe_paged_out(net.broker)
    assert left
    store.leave(left)
    receiver = client.receiver("q", credit=100)
    receiver.settle(Accepted(), *receiver.take())
    net.settle()
    net.restart()
    assert store.read == 400
    assert numbers(net.connect().receiver("q", credit=5000).bodies()) == list(range(100, 500))


def test_all_come_out_in_order_and_leave_nothing() -> None:
    net = PagedNetwork(limit=0)
    queue = net.declare("q")
    send(net.connect().sender("q"), 3000)
    net.settle()
    assert places(queue)[0] <= 2
    receiver = net.connect().receiver("q", credit=1000)
    seen: list[int] = []
    while receiver.deliveries:
        seen += numbers(receiver.bodies())
        receiver.settle(Accepted(), *receiver.take())
        receiver.credit(1000)
    assert seen == list(range(3000))
    net.broker.tidy()
    assert net.pages.pages == {} and net.pager.messages == 0 and queue.message_count() == 0


@pytest.mark.parametrize(("size", "least", "most"), [(10_000, 20, 30), (100, 250, 260)])
def test_as_many_become_entries_as_are_read_together(size: int, least: int, most: int) -> None:
    net = PagedNetwork(limit=0)
    net.declare("q")
    sender = net.connect().sender("q")
    for _ in range(600):
        sender.send_sections(Header(durable=True), Data(value=bytes(size)))
    net.restart()
    queue = net.queue("q")
    net.pager.high = net.pager.low = 100_000_000
    before = places(queue)[0]
    receiver = net.connect().receiver("q", credit=1)
    assert len(receiver.deliveries) == 1
    assert least <= net.pager.paged_in <= most
    assert places(queue)[0] <= before + net.pager.paged_in


def test_a_purge_drops_runs_records_and_pages() -> None:
    net = PagedNetwork(limit=0)
    queue = net.declare("q", QueuePolicy(priorities=2))
    sender = net.connect().sender("q")
    send(sender, 500, durable=True)
    send(sender, 500)
    for _ in range(30):
        sender.send_sections(Header(durable=True, priority=9), Data(value=BODY))
    net.settle()
    net.restart()
    queue = net.queue("q")
    send(net.connect().sender("q"), 100)
    net.settle()
    held = net.connect().receiver("q", credit=3)
    assert queue.message_count() == 630
    assert queue.purge().count == 627
    net.finish()
    net.broker.tidy()
    store = net.store
    assert store is not None and store.count(ENTRY) == 3 and net.pages.pages == {}
    assert net.pager.messages <= 3 and queue.bytes == sum(int(e.size) for e in queue.peek(9))
    held.settle(Accepted(), *held.take())
    net.restart()
    assert net.queue("q").message_count() == 0


@pytest.mark.parametrize("least", [2, 100])
def test_messages_are_selected_out_of_runs_while_others_are_consumed(least: int) -> None:
    net = PagedNetwork(limit=0, least=least)
    queue = net.declare("q")
    send(net.connect().sender("q"), 1500)
    net.settle()
    red = MessageSelection(None, "", "", selector("colour = 'red'"))
    receiver = net.connect().receiver("q")
    dropped: list[int] = []
    consumed: list[int] = []
    for turn, entry in enumerate(queue.select(red)):
        if entry is not None:
            dropped.append(int(entry.sequence) - 1)
            queue.drop_selected(entry)
        if turn % 100 == 0:
            # Messages at the front leave, and others are written to disk again.
            receiver.credit(20)
            consumed += numbers(receiver.bodies())
            receiver.settle(Accepted())
            net.settle()
    assert queue.entries.purges == 0
    assert len(dropped) == len(set(dropped)) and not set(dropped) & set(consumed)
    assert all(number % 3 == 0 for number in dropped)
    receiver.credit(5000)
    rest = numbers(receiver.bodies())
    assert rest == sorted(rest) and not any(number % 3 == 0 for number in rest)
    assert sorted(dropped + consumed + rest) == list(range(1500))


def test_a_look_leaves_runs_as_they_are() -> None:
    net = PagedNetwork(limit=0)
    queue = net.declare("q")
    send(net.connect().sender("q"), 3000)
    net.settle()
    before = places(queue)
    none = MessageSelection(None, "", "", selector("colour = 'green'"))
    assert [entry for entry in queue.select(none) if entry is not None] == []
    assert places(queue) == before and before[0] <= 2
    some = MessageSelection({5, 2000}, "", "", None)
    assert [int(entry.sequence) for entry in queue.select(some) if entry] == [5, 2000]
    assert places(queue)[0] <= before[0] + 6


def test_a_selector_takes_what_it_wants_out_of_the_middle() -> None:
    net = PagedNetwork(limit=0)
    queue = net.declare("q")
    send(net.connect().sender("q"), 90)
    net.settle()
    red = consume(net.connect(), "q", 10, selector="colour = 'red'")
    assert numbers(red.bodies()) == list(range(0, 30, 3))
    late = consume(net.connect(), "q", 5, selector="colour = 'none'")
    assert late.bodies() == []
    rest = net.connect().receiver("q", credit=100)
    assert numbers(rest.bodies()) == [n for n in range(90) if n % 3 or n >= 30]
    red.settle(Released(), *red.take())
    assert numbers(rest.bodies())[80:] == list(range(0, 30, 3))
    assert queue.acquired == 90


def test_a_selector_that_finds_nothing_leaves_no_entries_behind() -> None:
    net = PagedNetwork(limit=0)
    queue = net.declare("q")
    send(net.connect().sender("q"), 2500)
    net.settle()
    nobody = consume(net.connect(), "q", 5, selector="colour = 'none'")
    net.advance(1)
    assert nobody.bodies() == [] and queue.registry.evaluations() == 2500
    assert places(queue)[0] <= 2


def test_a_browser_stops_in_a_run_and_goes_on_there() -> None:
    net = PagedNetwork(limit=0)
    queue = net.declare("q")
    send(net.connect().sender("q"), 60)
    net.settle()
    browser = consume(net.connect(), "q", 7, mode="copy")
    assert numbers(browser.bodies()) == list(range(7))
    taker = net.connect().receiver("q", credit=20)
    taker.settle(Accepted(), *taker.take())
    browser.credit(10)
    assert numbers(browser.bodies()) == [*range(7), *range(20, 30)]
    other = consume(net.connect(), "q", 100, mode="copy")
    browser.credit(100)
    assert numbers(browser.bodies()) == [*range(7), *range(20, 60)]
    assert numbers(other.bodies()) == list(range(20, 60))
    assert queue.available == 40 and net.pager.messages >= 39


def test_messages_in_runs_expire_on_time() -> None:
    net = PagedNetwork(limit=0)
    queue = net.declare("q", QueuePolicy(expired="late"))
    net.declare("late")
    send(net.connect().sender("q"), 300, ttls=(None, 5_000, 90_000, 20_000))
    net.settle()
    assert places(queue)[0] <= 2
    late = net.connect().receiver("late", credit=500)
    net.advance(4.9)
    assert late.bodies() == []
    net.advance(0.2)
    assert numbers(late.bodies()) == list(range(1, 300, 4)) and queue.available == 225
    net.advance(20)
    assert sorted(numbers(late.bodies())) == list(range(1, 300, 2))
    assert numbers(net.connect().receiver("q", credit=1).bodies()) == [0]
    net.advance(70)
    assert queue.message_count() == 75


def test_the_oldest_of_a_run_makes_room() -> None:
    net = PagedNetwork(limit=0)
    net.declare("q", QueuePolicy(max_length=100, overflow="dead-letter", dead_letter="dead"))
    net.declare("dead")
    sender = net.connect().sender("q")
    send(sender, 100)
    net.settle()
    send(sender, 30)
    assert numbers(net.connect().receiver("dead", credit=99).bodies()) == list(range(30))
    left = numbers(net.connect().receiver("q", credit=200).bodies())
    assert left == [*range(30, 100), *range(30)]


def test_management_looks_into_runs_and_moves_out_of_them() -> None:
    net = PagedNetwork(limit=0)
    queue = net.declare("q")
    other = net.declare("other")
    send(net.connect().sender("q"), 200)
    net.settle()
    assert [int(entry.sequence) for entry in queue.peek(5, 150)] == list(range(150, 155))
    net.broker.begin_pass(net.now)
    assert finish(queue.move(other, 120)) == (120, None)
    net.finish()
    assert numbers(net.connect().receiver("other", credit=200).bodies()) == list(range(120))
    assert numbers(net.connect().receiver("q", credit=200).bodies()) == list(range(120, 200))


def test_what_somebody_had_before_a_restart_is_found_in_runs() -> None:
    net = PagedNetwork(limit=0)
    net.declare("q")
    send(net.connect().sender("q"), 600, durable=True)
    net.restart()
    queue = net.queue("q")
    held = queue.restorer().acquire({5, 300, 900})
    assert sorted(held) == [5, 300] and queue.acquired == 2
    owner = Consumer(0, copies=False)
    for entry in held.values():
        owner.hold(entry)
    receiver = net.connect().receiver("q", credit=1000)
    assert numbers(receiver.bodies()) == [n for n in range(600) if n not in (4, 299)]
    net.broker.begin_pass(net.now)
    queue.give_back(owner, held[300], False, False)
    queue.remove(owner, held[5])
    net.finish()
    assert numbers(receiver.bodies())[-1] == 299
    receiver.settle(Accepted(), *receiver.take())
    assert queue.message_count() == 0


@pytest.mark.parametrize(("step", "seconds"), [(-3600.0, 60.0), (3600.0, 0.0), (0.0, 50.0)])
def test_rows_with_a_time_to_live_and_a_date_keep_both(step: float, seconds: float) -> None:
    """Whichever comes first, each by its own clock (docs/decisions/0016-clocks.md)."""
    net = PagedNetwork(limit=0, least=8)
    queue = net.declare("q")
    sender = net.connect().sender("q")
    for _ in range(300):
        sender.send_sections(
            Header(ttl=60_000),
            Properties(absolute_expiry_time=net.wall + 50_000),
            Data(value=b"x" * 100),
        )
    net.settle()
    entries, runs = places(queue)
    assert runs >= 1 and entries < 100
    net.set_clock(step)
    if seconds:
        net.advance(seconds - 0.01)
        assert queue.available == 300
        net.advance(0.02)
    assert queue.available == 0 and queue.lifecycle.expirations == 300
