"""Sampling of all nodes: a timer reads the counters of the nodes, in slices.

The path of a message gets no new work. A node that has not changed since the last sample costs a
few comparisons. So does finding out when the oldest message of a queue came: messages have no time
of arrival, but the samples tell how many had come by when, and messages are numbered.

The samples of a virtual host and of the broker are sums over queues, subscriptions and streams. The
messages of streams are not among those that are there: streams keep them on purpose.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.event_log import log
from ferrymq_broker.history.series import (
    ARRAY_BYTES,
    DAY,
    EMPTY,
    PERIOD,
    START,
    NodeSeries,
    SampleClock,
)
from ferrymq_broker.nodes.node import Node, NodeHistory
from ferrymq_broker.nodes.queues.persistence import read_head
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.nodes.streams.stream import Stream
from ferrymq_broker.nodes.topics.subscription import Subscription
from ferrymq_broker.nodes.topics.topic import Topic
from ferrymq_broker.slices import SlicedTask, Slices
from ferrymq_broker.store.errors import StoreDamaged
from ferrymq_broker.store.tables import ENTRY
from ferrymq_broker.timers import Timer

if TYPE_CHECKING:
    from ferrymq_broker.addresses.address_space import AddressSpace
    from ferrymq_broker.broker import Broker
    from ferrymq_broker.nodes.node import Agenda
    from ferrymq_broker.nodes.topics.subscription_registry import EndedSubscriptions

# The units of work (`slices`) of making an array.
_ARRAY: Final = 4
# The subscriptions of a deleted topic that are still counted.
_FEW: Final = 100
# A stored message with more bytes is not read for the time of its arrival.
_SMALL: Final = 1 << 20


def series_of(history: NodeHistory | None) -> NodeSeries | None:
    """Return the samples of a node or of a virtual host; None if there are none."""
    return history if isinstance(history, NodeSeries) else None


@final
class _Sum:
    """A sum over nodes: messages that came in and went out since the broker was started, messages
    that are there, and when the oldest came."""

    __slots__ = ("ins", "outs", "depth", "oldest")

    def __init__(self) -> None:
        self.ins: i64 = 0
        self.outs: i64 = 0
        self.depth: i64 = 0
        self.oldest: i64 = EMPTY

    def begin(self) -> None:
        """Begin to add up what is there."""
        self.depth = 0
        self.oldest = EMPTY

    def add(self, depth: i64, oldest: i64) -> None:
        """Add the messages of a node."""
        self.depth += depth
        if oldest != EMPTY and (self.oldest == EMPTY or oldest < self.oldest):
            self.oldest = oldest


@final
class _RemovedNodes:
    """The listener for nodes that are removed from a virtual host: counts what happened to them
    since the last sample."""

    __slots__ = ("_sampler", "_sum")

    def __init__(self, sampler: Sampler, sum: _Sum) -> None:
        self._sampler = sampler
        self._sum = sum

    def on_change(self, node: Node, added: bool) -> None:
        """Count the last messages of a node that is removed."""
        if not added:
            self._sampler.count_last(node, self._sum)


@final
class _Sweep(SlicedTask):
    """The task that takes the samples of one tick."""

    __slots__ = (
        "_sampler",
        "_spaces",
        "_space",
        "_nodes",
        "_at",
        "_topic",
        "_subscriptions",
        "_place",
        "_of_topic",
    )

    def __init__(self, sampler: Sampler) -> None:
        super().__init__()
        self._sampler = sampler
        # The virtual hosts still to come, and the present one with its nodes.
        self._spaces: list[AddressSpace] = []
        self._space: AddressSpace | None = None
        self._nodes: list[Node] = []
        self._at: i64 = 0
        # The present topic with its subscriptions.
        self._topic: Topic | None = None
        self._subscriptions: list[Subscription] = []
        self._place: i64 = 0
        self._of_topic = _Sum()

    def begin(self, spaces: list[AddressSpace]) -> None:
        """Begin to go through all nodes of these virtual hosts."""
        self._spaces = spaces
        self._space = None
        self._nodes = []
        self._at = 0
        self._topic = None

    def go_on(self, slices: Slices) -> bool:
        """Sample nodes, as far as the slice allows."""
        sampler = self._sampler
        while True:
            topic = self._topic
            if topic is not None:
                if not self._go_through(topic, slices):
                    return False
                self._topic = None
            if self._at < len(self._nodes):
                if slices.is_spent():
                    return False
                slices.spend(1)
                node = self._nodes[self._at]
                self._at += 1
                if isinstance(node, Queue):
                    if not node.deleted:
                        sampler.take_queue(node, sampler.sum)
                elif isinstance(node, Topic):
                    self._topic = node
                    self._subscriptions = node.subscriptions()
                    self._place = 0
                    self._of_topic = sum_of_ended(node)
                elif isinstance(node, Stream) and not node.deleted:
                    sampler.take_stream(node, sampler.sum)
                continue
            space = self._space
            if space is not None:
                sampler.end_space(space)
            if not self._spaces:
                self._space = None
                self._nodes = []
                self._subscriptions = []
                sampler.end()
                return True
            space = self._spaces.pop()
            self._space = space
            self._nodes = list(space.nodes.values())
            self._at = 0
            sampler.begin_space(space)

    def _go_through(self, topic: Topic, slices: Slices) -> bool:
        """Sample the subscriptions of a topic, then the topic; return whether that is done."""
        sampler = self._sampler
        sum = self._of_topic
        while self._place < len(self._subscriptions):
            if slices.is_spent():
                return False
            slices.spend(1)
            queue = self._subscriptions[self._place].queue
            self._place += 1
            sampler.take_subscription(queue, sum)
        if not topic.deleted:
            sampler.take_topic(topic, sum, sampler.sum)
        return True


def sum_of_ended(topic: Topic) -> _Sum:
    """Return what the ended subscriptions of a topic got and delivered."""
    sum = _Sum()
    _add_ended(topic.ended(True), sum)
    _add_ended(topic.ended(False), sum)
    return sum


def _add_ended(ended: EndedSubscriptions | None, sum: _Sum) -> None:
    if ended is None:
        return
    sum.ins += ended.totals.get("published", 0)
    sum.outs += ended.totals.get("delivered", 0)
    for node in ended.nodes:
        if isinstance(node, Queue):
            _count_queue(node, sum)


def _count_queue(queue: Queue, sum: _Sum) -> None:
    """Add what a queue got and delivered since the broker was started."""
    entries = queue.entries
    sum.ins += entries.published - entries.recovered
    sum.outs += queue.dispatcher.delivered


@final
class Sampler(Timer):
    """The timer that samples all nodes of a broker every `PERIOD` milliseconds.

    All arrays together have at most `max_bytes`, beside those of the broker and of each virtual
    host. Nodes that are used after that have rates, but no history, until there is room. `arrays`
    is how many there are. `sum` is the sum of the virtual host that is sampled at the moment.
    """

    __slots__ = ("broker", "clock", "sum", "arrays", "_most", "_sums", "_sweep", "_tick", "_seen")

    def __init__(self, broker: Broker, max_bytes: i64) -> None:
        super().__init__()
        self.broker: Broker = broker
        now = broker.agenda.now
        self.clock: SampleClock = SampleClock(now)
        self.sum: _Sum = _Sum()
        self.arrays: i64 = 0
        self._most: i64 = max_bytes // ARRAY_BYTES + 1 + len(broker.spaces)
        self._sums: dict[str, _Sum] = {}
        self._sweep = _Sweep(self)
        # The tick that is being sampled, and the arrays seen so far.
        self._tick: i64 = 0
        self._seen: i64 = 0
        whole = NodeSeries(self.clock, 0)
        whole.keep()
        broker.history = whole
        self.arrays += 1
        for name, space in broker.spaces.items():
            sum = _Sum()
            self._sums[name] = sum
            series = NodeSeries(self.clock, 0)
            series.keep()
            space.history = series
            self.arrays += 1
            space.on_change.append(_RemovedNodes(self, sum).on_change)
        broker.timers.set(self, now + PERIOD)

    def on_time(self, now: i64) -> None:
        """Begin to sample, unless the last samples are not complete yet."""
        clock = self.clock
        tick = (now - clock.began) // PERIOD
        if tick > self._tick and not self._sweep.waits:
            self._tick = tick
            self._seen = 0
            self._sweep.begin(list(self.broker.spaces.values()))
            self.broker.agenda.slices.do(self._sweep)
        self.broker.timers.set(self, clock.began + (tick + 1) * PERIOD)

    def begin_space(self, space: AddressSpace) -> None:
        """Begin with the nodes of a virtual host."""
        self.sum = self._sums[space.name]
        self.sum.begin()

    def end_space(self, space: AddressSpace) -> None:
        """Take the sample of a virtual host, after those of its nodes."""
        sum = self.sum
        self._take_sum(space.history, sum)

    def end(self) -> None:
        """Take the sample of the broker, and make those of this tick visible."""
        whole = _Sum()
        for sum in self._sums.values():
            whole.ins += sum.ins
            whole.outs += sum.outs
            whole.add(sum.depth, sum.oldest)
        self._take_sum(self.broker.history, whole)
        self.arrays = self._seen
        clock = self.clock
        clock.before = clock.tick
        clock.tick = self._tick

    def _take_sum(self, history: NodeHistory | None, sum: _Sum) -> None:
        """Record the sample of a virtual host or of the broker."""
        series = series_of(history)
        if series is not None:
            self._seen += 1
            series.record(self._tick, sum.ins, sum.outs, sum.depth, sum.oldest)

    # -- nodes -------------------------------------------------------------------------------

    def _series(self, node: Node) -> NodeSeries:
        """Return the samples of a node, which begin with the last tick for a new node."""
        series = series_of(node.history)
        if series is None:
            series = NodeSeries(self.clock, self.clock.tick)
            node.history = series
        return series

    def _take(self, series: NodeSeries, ins: i64, outs: i64, depth: i64, oldest: i64) -> None:
        """Record a sample, if anything has changed."""
        if (
            ins != series.ins
            or outs != series.outs
            or depth != series.depth
            or oldest != series.oldest
        ):
            self._record(series, ins, outs, depth, oldest)
        elif series.kept:
            self._see(series)

    def _record(self, series: NodeSeries, ins: i64, outs: i64, depth: i64, oldest: i64) -> None:
        if not series.kept and self.arrays < self._most:
            series.keep()
            self.arrays += 1
            self.broker.agenda.slices.spend(_ARRAY)
        series.record(self._tick, ins, outs, depth, oldest)
        if series.kept:
            self._seen += 1

    def _see(self, series: NodeSeries) -> None:
        """Count the array of a node that has not changed; free it if it is needed and tells
        nothing."""
        if self.arrays >= self._most and self._tick - series.tick > 2 * DAY:
            series.drop()
        else:
            self._seen += 1

    def take_queue(self, queue: Queue, sum: _Sum) -> None:
        """Take the sample of a queue, and add it to those of its virtual host."""
        series = self._series(queue)
        ins = series.ins
        outs = series.outs
        self._sample_queue(queue, series)
        sum.ins += series.ins - ins
        sum.outs += series.outs - outs
        sum.add(series.depth, series.oldest)

    def take_subscription(self, queue: Queue, sum: _Sum) -> None:
        """Take the sample of a subscription, and add it to those of its topic."""
        if queue.deleted:
            # It is among the ended ones, now or soon.
            return
        series = self._series(queue)
        self._sample_queue(queue, series)
        sum.ins += series.ins
        sum.outs += series.outs
        sum.add(series.depth, series.oldest)

    def take_topic(self, topic: Topic, sum: _Sum, host: _Sum) -> None:
        """Take the sample of a topic from the sum of its subscriptions, and add it to those of its
        virtual host."""
        series = self._series(topic)
        # What is counted must not fall. A subscription that ended meanwhile is counted next time.
        outs = sum.outs if sum.outs > series.outs else series.outs
        copies = sum.ins if sum.ins > series.copies else series.copies
        host.ins += copies - series.copies
        host.outs += outs - series.outs
        host.add(sum.depth, sum.oldest)
        series.copies = copies
        self._take(series, topic.published, outs, sum.depth, sum.oldest)

    def take_stream(self, stream: Stream, host: _Sum) -> None:
        """Take the sample of a stream."""
        series = self._series(stream)
        ins = stream.published()
        outs = stream.delivered
        depth = stream.message_count()
        host.ins += ins - series.ins
        host.outs += outs - series.outs
        if ins == series.ins and outs == series.outs and depth == series.depth:
            if series.kept:
                self._see(series)
            return
        began = stream.began()
        agenda = stream.agenda
        oldest = EMPTY if began == 0 else self.clock.second(agenda.moment_of(began))
        self._record(series, ins, outs, depth, oldest)

    def count_last(self, node: Node, host: _Sum) -> None:
        """Count what happened to a node since its last sample. It is removed from its virtual
        host."""
        series = series_of(node.history)
        ins: i64 = 0
        outs: i64 = 0
        if series is not None:
            ins = series.ins
            outs = series.outs
        sum = _Sum()
        if isinstance(node, Queue):
            _count_queue(node, sum)
        elif isinstance(node, Stream):
            sum.ins = node.published()
            sum.outs = node.delivered
        elif isinstance(node, Topic):
            subscriptions = node.subscriptions()
            if len(subscriptions) > _FEW:
                return
            if series is not None:
                ins = series.copies
            sum = sum_of_ended(node)
            for subscription in subscriptions:
                _count_queue(subscription.queue, sum)
        host.ins += sum.ins - ins
        host.outs += sum.outs - outs
        # Counted completely, should the present samples come to it.
        node.history = None

    # -- queues ------------------------------------------------------------------------------

    def _sample_queue(self, queue: Queue, series: NodeSeries) -> None:
        entries = queue.entries
        ins = entries.published - entries.recovered
        outs = queue.dispatcher.delivered
        depth = queue.message_count()
        if ins == series.ins and outs == series.outs and depth == series.depth:
            # Then the oldest message is the same, too.
            if series.kept:
                self._see(series)
            return
        self._record(series, ins, outs, depth, self._oldest(queue, series, ins))

    def _oldest(self, queue: Queue, series: NodeSeries, ins: i64) -> i64:
        """Return when the oldest message of a queue came, in the seconds of the samples. `ins`
        messages have come by now, `series` is as of the last sample."""
        entries = queue.entries
        entry = entries.first_entry()
        if entry is None:
            series.first = 0
            return EMPTY
        first = entry.sequence
        if first == series.first and series.oldest != EMPTY:
            return series.oldest
        series.first = first
        count = first - entries.recovered
        if count > series.ins:
            # Between the last sample and this one. Assume that messages came at a constant rate.
            begin = self.clock.tick
            span = (count - series.ins) * (self._tick - begin) * PERIOD // (ins - series.ins)
            return (begin * PERIOD + span) // 1000 + START
        found = series.arrival(count) if count > 0 else EMPTY
        if found == EMPTY and queue.store_id != 0 and i64(entry.size) <= _SMALL:
            found = self._stored_arrival(queue, first)
        if found != EMPTY:
            return found
        if count > 0 and series.oldest != EMPTY:
            # It came after the message that was the oldest one before.
            return series.oldest
        return START

    def _stored_arrival(self, queue: Queue, sequence: i64) -> i64:
        """Return when a message came by its record; `EMPTY` if the record does not tell."""
        agenda: Agenda = queue.agenda
        store = agenda.store
        if store is None:
            return EMPTY
        try:
            value = store.get(ENTRY, queue.store_id, sequence)
            if value is None:
                return EMPTY
            head = read_head(value)
        except (StoreDamaged, OSError) as error:
            log.warning("a record cannot be read", node=queue.address, reason=str(error))
            return EMPTY
        if head.expires:
            # The record has the time at which the message expires instead.
            return EMPTY
        return self.clock.second(agenda.moment_of(head.time))
