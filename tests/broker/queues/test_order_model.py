"""A queue with several kinds of consumers against a model of what they may and must get.

Consumers differ in filter, priority and credit; messages in colour, priority and group. After
every step the model checks what was delivered in it, and that nothing was left lying that somebody
could have had.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    precondition,
    rule,
)

from ferrymq.engine.delivery import IncomingDelivery
from ferrymq_broker.values.policy import QueuePolicy
from ferrymq_types.messaging import Accepted, Modified, Rejected, Released
from tests.broker.harness import Client, Network, Receiver, text
from tests.broker.queues.links import consume, publish

COLOURS = ("red", "green", "blue")
SELECTORS = (None, "colour = 'red'", "colour <> 'blue'")


def lets_pass(selector: str | None, colour: str) -> bool:
    return selector is None or (colour == "red" if "=" in selector else colour != "blue")


class Sent:
    """A message in the queue. `holder` is who has it, `barred` whoever must not get it."""

    def __init__(self, number: int, level: int, colour: str, group: str | None) -> None:
        self.number = number
        self.rank = (-level, number)
        self.colour = colour
        self.group = group
        self.holder: Worker | None = None
        self.barred: set[Worker] = set()


class Worker:
    """A consumer."""

    def __init__(
        self, client: Client, receiver: Receiver, selector: str | None, priority: int
    ) -> None:
        self.client = client
        self.receiver = receiver
        self.selector = selector
        self.priority = priority
        self.got: list[Sent] = []

    def wants(self, sent: Sent) -> bool:
        return lets_pass(self.selector, sent.colour) and self not in sent.barred

    @property
    def hungry(self) -> bool:
        return self.receiver.link.credit > 0


class Onlooker:
    """A browser."""

    def __init__(self, receiver: Receiver, selector: str | None) -> None:
        self.receiver = receiver
        self.selector = selector
        # What it has to see, as far as that is certain; and what it has seen.
        self.due: set[int] = set()
        self.seen: list[int] = []


class QueueMachine(RuleBasedStateMachine):
    """One queue; every step is one thing a client does."""

    workers: Bundle[Worker] = Bundle("workers")
    onlookers: Bundle[Onlooker] = Bundle("onlookers")

    grouped = False

    def __init__(self) -> None:
        super().__init__()
        self.net = Network()
        self.client = self.net.connect()
        self.count = 0
        self.sent: dict[int, Sent] = {}
        self.staff: list[Worker] = []
        self.audience: list[Onlooker] = []
        self.low, self.high = 0, 9

    def policy(self, levels: int) -> QueuePolicy:
        return QueuePolicy(priorities=levels)

    @initialize(levels=st.integers(1, 10))
    def declare(self, levels: int) -> None:
        # AMQP 1.0 §3.2.1
        self.low, self.high = 5 - (levels + 1) // 2, 4 + levels // 2
        self.queue = self.net.declare("q", self.policy(levels))
        self.sender = self.client.sender("q")

    # -- what clients do -----------------------------------------------------------------

    @rule(
        colour=st.sampled_from(COLOURS),
        priority=st.one_of(st.just(4), st.integers(0, 12)),
        group=st.sampled_from((None, "a", "b", "c")),
    )
    def publish(self, colour: str, priority: int, group: str | None) -> None:
        number = self.count
        self.count += 1
        if self.grouped:
            # What the order of a group is needs no help of priorities and filters.
            priority, colour = 4, "red"
        level = min(max(priority, self.low), self.high)
        self.sent[number] = Sent(number, level, colour, group if self.grouped else None)
        for onlooker in self.audience:
            if lets_pass(onlooker.selector, colour):
                onlooker.due.add(number)
        publish(self.sender, b"%d" % number, priority=priority, group=group, colour=colour)

    @rule(
        target=workers,
        selector=st.sampled_from(SELECTORS),
        priority=st.sampled_from((0, 0, 0, 1, -5)),
        credit=st.integers(0, 5),
    )
    def attach(self, selector: str | None, priority: int, credit: int) -> Worker:
        client = self.net.connect()
        receiver = consume(client, "q", selector=selector, priority=priority)
        worker = Worker(client, receiver, selector, priority)
        self.staff.append(worker)
        if credit:
            receiver.credit(credit)
        return worker

    @rule(worker=workers, credit=st.integers(0, 5))
    def allow(self, worker: Worker, credit: int) -> None:
        worker.receiver.credit(credit)

    @rule(worker=workers)
    def drain(self, worker: Worker) -> None:
        drained = worker.receiver.drained
        if worker.hungry:
            worker.receiver.drain()
            assert worker.receiver.drained == drained + 1
            assert worker.receiver.link.credit == 0

    @rule(
        worker=workers,
        which=st.lists(st.integers(0, 20), min_size=1, max_size=4),
        outcome=st.sampled_from(("accept", "reject", "release", "fail", "elsewhere")),
    )
    def settle(self, worker: Worker, which: Sequence[int], outcome: str) -> None:
        chosen: dict[int, IncomingDelivery] = {}
        for index in which:
            if worker.receiver.deliveries:
                at = index % len(worker.receiver.deliveries)
                delivery = worker.receiver.deliveries.pop(at)
                chosen[int(text(delivery.payload))] = delivery
        if not chosen:
            return
        for number in chosen:
            sent = self.sent[number]
            assert sent.holder is worker
            sent.holder = None
            worker.got.remove(sent)
            if outcome == "elsewhere":
                sent.barred.add(worker)
            elif outcome in ("accept", "reject"):
                del self.sent[number]
        state = {
            "accept": Accepted(),
            "reject": Rejected(),
            "release": Released(),
            "fail": Modified(delivery_failed=True),
            "elsewhere": Modified(undeliverable_here=True),
        }[outcome]
        worker.receiver.settle(state, *chosen.values())

    @rule(worker=consumes(workers), how=st.sampled_from(("close", "lose")))
    def leave(self, worker: Worker, how: str) -> None:
        self.staff.remove(worker)
        for sent in worker.got:
            sent.holder = None
        for sent in self.sent.values():
            sent.barred.discard(worker)
        if how == "close":
            worker.receiver.close()
        else:
            worker.client.lose()

    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        entries = [entry for entry in self.entries() if entry.state == 0]
        if not entries:
            return
        entry = data.draw(st.sampled_from(entries))
        number = int(text(entry.message.payload))
        self.net.broker.begin_pass(self.net.now)
        self.queue.drop(entry)
        self.net.broker.finish_pass()
        del self.sent[number]
        for onlooker in self.audience:
            onlooker.due.discard(number)
        self.net.run()

    @rule()
    def purge(self) -> None:
        left = {number: sent for number, sent in self.sent.items() if sent.holder is not None}
        assert self.queue.purge().count == len(self.sent) - len(left)
        for onlooker in self.audience:
            onlooker.due -= self.sent.keys() - left.keys()
        self.sent = left

    @rule(target=onlookers, selector=st.sampled_from(SELECTORS))
    def browse(self, selector: str | None) -> Onlooker:
        receiver = consume(self.client, "q", 100_000, selector=selector, mode="copy")
        onlooker = Onlooker(receiver, selector)
        available = [sent for sent in self.sent.values() if sent.holder is None]
        available.sort(key=lambda sent: sent.rank)
        numbers = [sent.number for sent in available if lets_pass(selector, sent.colour)]
        assert [int(body) for body in receiver.bodies()] == numbers
        onlooker.due.update(numbers)
        self.audience.append(onlooker)
        return onlooker

    @rule(onlooker=consumes(onlookers))
    def look_away(self, onlooker: Onlooker) -> None:
        self.audience.remove(onlooker)
        onlooker.receiver.close()

    @precondition(lambda self: len(self.staff) > 2)
    @rule(worker=consumes(workers), other=workers)
    def leave_for_another(self, worker: Worker, other: Worker) -> None:
        self.leave(worker, "close")

    # -- what has to be so -----------------------------------------------------------------

    def entries(self) -> list[object]:
        found = []
        for priority_level in self.queue.entries.priority_levels:
            entry = priority_level.first
            while entry is not None:
                found.append(entry)
                entry = entry.next
        return found

    @invariant()
    def everybody_got_what_he_should(self) -> None:
        if not hasattr(self, "queue"):
            return
        news: list[tuple[Worker, Sent]] = []
        for worker in self.staff:
            known = {sent.number for sent in worker.got}
            fresh = [
                self.sent[number]
                for number in (int(body) for body in worker.receiver.bodies())
                if number not in known
            ]
            assert fresh == sorted(fresh, key=lambda sent: sent.rank), "in order"
            for sent in fresh:
                assert sent.holder is None, "to one consumer"
                assert worker.wants(sent)
                sent.holder = worker
                worker.got.append(sent)
                news.append((worker, sent))
        self.check_groups(news)
        left = [sent for sent in self.sent.values() if sent.holder is None]
        for worker in self.staff:
            mine = [sent for sent in left if worker.wants(sent) and self.is_free(sent, worker)]
            assert not (mine and worker.hungry), "nothing is left lying"
            if not self.grouped:
                for taker, sent in news:
                    if taker is worker:
                        assert all(sent.rank < other.rank for other in mine), "first come"
                    elif taker.priority < worker.priority and worker.hungry:
                        assert not worker.wants(sent), "the more important one first"

    @invariant()
    def the_figures_are_right(self) -> None:
        if not hasattr(self, "queue"):
            return
        held = sum(sent.holder is not None for sent in self.sent.values())
        assert self.queue.acquired == held
        assert self.queue.available == len(self.sent) - held
        entries = self.entries()
        assert len(entries) == len(self.sent)
        size = sum(len(entry.message.payload) for entry in entries)
        assert self.queue.bytes == size == self.net.broker.agenda.held
        if self.queue.entries.groups is not None:
            assert len(self.queue.entries.groups) == len(
                {s.group for s in self.sent.values()} - {None}
            )
        oldest = self.queue.entries.first_available()
        free = [sent for sent in self.sent.values() if sent.holder is None]
        if oldest is None:
            assert not free
        else:
            first = max(free, key=lambda sent: (sent.rank[0], -sent.number))
            assert int(text(oldest.message.payload)) == first.number

    @invariant()
    def browsers_saw_everything_once(self) -> None:
        for onlooker in self.audience:
            seen = [int(body) for body in onlooker.receiver.bodies()]
            assert len(seen) == len(set(seen))
            assert onlooker.due <= set(seen)

    # -- groups ------------------------------------------------------------------------------

    def is_free(self, sent: Sent, worker: Worker) -> bool:
        return True

    def check_groups(self, news: list[tuple[Worker, Sent]]) -> None:
        """Nothing about groups."""


class GroupMachine(QueueMachine):
    """The same with groups: `owners` is who had the last message of each."""

    grouped = True

    def __init__(self) -> None:
        super().__init__()
        self.owners: dict[str, Worker] = {}

    def policy(self, levels: int) -> QueuePolicy:
        return QueuePolicy(priorities=levels, groups=True)

    def members(self, group: str) -> list[Sent]:
        return [sent for sent in self.sent.values() if sent.group == group]

    def check_groups(self, news: list[tuple[Worker, Sent]]) -> None:
        for worker, sent in news:
            group = sent.group
            if group is None:
                continue
            for other in self.members(group):
                if other.holder is None:
                    assert other.number > sent.number, "an older one of the group waits"
                elif other.holder is not worker:
                    # Only a message that its consumer did not want moves a group.
                    assert other.holder in self.barring(group), "two consumers of one group"
            self.owners[group] = worker

    def barring(self, group: str) -> set[Worker]:
        """Whoever did not want a message of the group, the one of this step included."""
        self.remember_who_barred()
        return self.everyone_barred.get(group, set())

    @initialize()
    def nobody_barred(self) -> None:
        self.everyone_barred: dict[str, set[Worker]] = {}

    @invariant()
    def remember_who_barred(self) -> None:
        for sent in self.sent.values():
            if sent.group is not None and sent.barred:
                self.everyone_barred.setdefault(sent.group, set()).update(sent.barred)

    def is_free(self, sent: Sent, worker: Worker) -> bool:
        group = sent.group
        if group is None:
            return True
        waiting = [other for other in self.members(group) if other.holder is None]
        if sent is not waiting[0]:
            return False
        holders = {other.holder for other in self.members(group)} - {None}
        owner = self.owners.get(group)
        if owner not in self.staff:
            # It is anybody's.
            return not holders
        return owner is worker and holders <= {worker}


TestQueueMachine = QueueMachine.TestCase
TestGroupMachine = GroupMachine.TestCase
