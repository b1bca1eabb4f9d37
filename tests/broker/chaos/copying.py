"""Readers of chunks: they copy partitions, over one link after the other, each record once.

A link ends in every way there is, and the journey goes on where it was. Some hold what they have
still to copy; these miss nothing but what is purged.
"""

from __future__ import annotations

from copy import deepcopy
from uuid import UUID
from weakref import WeakKeyDictionary

from ferrymq_broker.nodes.streams.stream import Stream
from ferrymq_broker.store.tables import RECORD
from ferrymq_codec.scalars import Described, Symbol, Timestamp, UInt, ULong
from ferrymq_types.filters import SelectorFilter
from ferrymq_types.messaging import (
    Accepted,
    Data,
    Released,
    Source,
    TerminusDurability,
    TerminusExpiryPolicy,
)
from ferrymq_types.transport import Error, SenderSettleMode
from tests.broker.chaos.holding import LARGE, Holding
from tests.broker.chaos.journey import Journey
from tests.broker.chaos.ledger import SELECTORS
from tests.broker.chaos.stage import Actor, number_of
from tests.broker.chaos.world import STREAMS
from tests.broker.harness import Receiver, encode, message_annotations
from tests.broker.management.asker import read_answer, request_sections
from tests.broker.stores import ManualStore
from tests.broker.transactions.kit import Controller, acquire

JOURNEYS = 6

POSITION = "ferrymq:position"
TRIMMED = "ferrymq:stream-trimmed"
TOO_LARGE = "amqp:link:message-size-exceeded"


class Copying(Holding):
    """Set out, read, stop, go on; in transactions too, and while the disk is slow."""

    def __init__(self, seed: int, steps: int, stored: bool = False, streams: bool = False) -> None:
        super().__init__(seed, steps, stored, streams)
        self.journeys: list[Journey] = []
        self._count = 0
        # Where links that read records one by one are in each partition.
        self._places: WeakKeyDictionary[Receiver, dict[int, int]] = WeakKeyDictionary()

    # -- links come and go -------------------------------------------------------------------

    def set_out(self) -> None:
        """Somebody begins to copy a partition."""
        stream = self.some_stream()
        if stream is None or len(self.journeys) >= JOURNEYS:
            return
        random = self.random
        number = random.randrange(len(stream.partitions))
        first, end = stream.range(number)
        until = random.choice((None, None, max(0, first - 1), random.randint(first, end + 6)))
        self._count += 1
        journey = Journey(self._count, stream.address, number, until, random.random() < 0.4)
        if random.random() < 0.3:
            journey.selector = random.choice(SELECTORS)
        journey.largest = random.choice((0, 0, 0, 400))
        self.journeys.append(journey)
        if random.random() < 0.4:
            holder = f"journey {journey.number}"
            if self.ask_hold(stream, holder, {number: first}):
                journey.holder = holder
        self.attach(journey)

    def go_on(self) -> None:
        """Somebody who has no link attaches one again."""
        idle = [journey for journey in self.journeys if journey.receiver is None]
        if idle:
            self.attach(self.random.choice(idle))

    def attach(self, journey: Journey) -> None:
        """The journey gets a link, if there is anything to read."""
        random = self.random
        actor = self.some_actor()
        name = f"copy-{random.randrange(6)}"
        names = {j.receiver.link.name for j in self.journeys if j.receiver and j.actor is actor}
        if actor.client.handler.output.paused or name in names:
            return
        start, expected = self.start_of(journey)
        filters: dict[str, object] = {POSITION: Described(Symbol(POSITION), start)}
        if journey.selector is not None:
            filters["selector"] = SelectorFilter(journey.selector)
        limits: dict[Symbol, object] = {}
        if random.random() < 0.6:
            limits[Symbol("bytes")] = ULong(random.choice((1, 300, 2000, 500_000)))
        if random.random() < 0.6:
            limits[Symbol("records")] = UInt(random.choice((1, 2, 10)))
        properties: dict[str, object] = {"ferrymq:chunks": limits}
        if journey.until is not None:
            properties["ferrymq:until"] = journey.until
        if journey.forgiving:
            properties["ferrymq:on-trim"] = "continue"
        source = Source(
            address=f"{journey.stream}::{journey.partition}",
            filter=filters,
            durable=random.choice(list(TerminusDurability)),
            expiry_policy=random.choice(list(TerminusExpiryPolicy)),
            timeout=random.choice((0, 0, 3)),
        )
        self.say(f"{actor.container} {name}: {journey} from {start} {properties}")
        receiver = actor.client.receiver(
            None,
            source=source,
            name=name,
            snd=random.choice(list(SenderSettleMode)),
            max_message_size=journey.largest,
            properties=properties,
        )
        if receiver.detached:
            self.turn_away(journey, receiver)
            return
        self.note_start(journey, receiver, expected)
        journey.actor = actor
        journey.receiver = receiver
        receiver.credit(random.choice((0, 1, 2, 10)))

    def start_of(self, journey: Journey) -> tuple[object, int | None]:
        """Where a link is to begin, and the offset that has to be, if the stream is there."""
        stream = self.net.space.nodes.get(journey.stream)
        there = isinstance(stream, Stream) and journey.partition < len(stream.partitions)
        first, end = (
            stream.range(journey.partition) if isinstance(stream, Stream) and there else (0, 0)
        )
        if journey.incarnation is not None:
            return ULong(journey.next), max(first, journey.next)
        if not isinstance(stream, Stream) or not there:
            return "first", None
        if journey.holder:
            return "first", first
        time = self.net.wall - self.random.choice((0, 500, 5000))
        records = self.ledger.of((stream.incarnation, journey.partition))
        later = [at for at in range(first, end) if records[at].time >= time]
        starts: tuple[tuple[object, int], ...] = (
            ("first", first),
            ("next", end),
            ("last", max(first, end - 1)),
            (Timestamp(time), later[0] if later else end),
        )
        return self.random.choice(starts)

    def turn_away(self, journey: Journey, receiver: Receiver) -> None:
        """The link was refused, which has a reason: the stream is not there, or another one."""
        stream = self.net.space.nodes.get(journey.stream)
        condition = None if receiver.error is None else receiver.error.condition
        self.happened[f"link: {condition}"] += 1
        if isinstance(stream, Stream) and journey.partition < len(stream.partitions):
            assert condition == "amqp:precondition-failed", receiver.error
            assert journey.incarnation != stream.incarnation, f"{journey} is refused"
        else:
            assert condition == "amqp:not-found", receiver.error
        self.give_up(journey)

    def note_start(self, journey: Journey, receiver: Receiver, expected: int | None) -> None:
        """What the broker grants is what there is."""
        attach = receiver.link.remote_attach
        assert attach is not None and isinstance(attach.source, Source)
        granted = attach.properties or {}
        stream = self.net.space.nodes[journey.stream]
        assert isinstance(stream, Stream)
        incarnation = granted["ferrymq:incarnation"]
        assert incarnation == stream.incarnation and isinstance(incarnation, UUID)
        assert granted["ferrymq:partitions"] == len(stream.partitions)
        assert granted.get("ferrymq:until") == journey.until
        # Positions are the reader's affair.
        assert attach.source.durable == TerminusDurability.NONE
        start = granted["ferrymq:first-offset"]
        assert isinstance(start, int) and start == expected
        limits = granted["ferrymq:chunks"]
        assert isinstance(limits, dict)
        journey.bytes, journey.records = limits["bytes"], limits["records"]
        if journey.incarnation == incarnation:
            self.check_gap(journey, start)
        elif journey.incarnation is not None:
            # Of the same name, and something else.
            journey.holder = ""
            journey.end = 0
        journey.incarnation = incarnation
        journey.next = start

    def check_gap(self, journey: Journey, start: int) -> None:
        """What it has not got before this offset is gone, and was not held."""
        if start == journey.next:
            return
        stream = self.net.space.nodes.get(journey.stream)
        if isinstance(stream, Stream) and stream.incarnation == journey.incarnation:
            assert start <= stream.range(journey.partition)[0], f"{journey} misses what is there"
        if journey.holder:
            purged = self.purged.get(journey.part, 0)
            assert start <= purged, f"{journey} misses what it held, up to {start}"
        self.happened["gaps"] += 1

    def stop(self) -> None:
        """Somebody detaches his link, or closes it."""
        there = self.attached()
        if there:
            journey, receiver = self.random.choice(there)
            self.say(f"{journey}")
            receiver.close(self.random.random() < 0.5)
            self.hear_journeys()
            journey.leave()

    def give_up(self, journey: Journey) -> None:
        """Nobody wants the rest."""
        self.journeys.remove(journey)
        if journey.holder and journey.holder in self.holds.get(journey.stream, {}):
            self.ask_release(journey.stream, journey.holder)

    def attached(self) -> list[tuple[Journey, Receiver]]:
        """Those with a link whose client reads what comes."""
        return [
            (journey, journey.receiver)
            for journey in self.journeys
            if journey.receiver is not None and journey.actor is not None and journey.actor.hears
        ]

    # -- reading -----------------------------------------------------------------------------

    def read_more(self) -> None:
        """Somebody takes so many chunks more, perhaps no more than there are."""
        there = self.attached()
        if not there:
            return
        journey, receiver = self.random.choice(there)
        credit = self.random.choice((0, 1, 2, 10))
        self.say(f"{journey} {credit}")
        receiver.credit(credit)
        if receiver.link.credit > 0 and self.random.random() < 0.3:
            assert journey.actor is not None
            self.drain_link(journey.actor, receiver)

    def read_in_transaction(self) -> None:
        """Somebody reads in a transaction, while something else happens."""
        there = [(j, r) for j, r in self.attached() if r.link.credit == 0]
        if not there:
            return
        journey, receiver = self.random.choice(there)
        control = Controller(receiver.client)
        txn = control.declare()
        start = journey.next
        journey.unsettled.clear()
        acquire(receiver, txn, self.random.choice((1, 2, 10)))
        self.hear_journeys(True)
        meanwhile = self.random.choice(
            (self.send, self.pass_time, self.purge_stream, self.move_hold, self.locate)
        )
        self.say(f"{journey}: {meanwhile.__name__}")
        meanwhile()
        self.hear_journeys(True)
        ends = ["commit", "roll back"]
        if journey.unsettled:
            ends.append("spoil")
        end = self.random.choice(ends)
        self.say(f"{journey}: {end}")
        self.happened[end] += 1
        if end != "commit" and journey.receiver is receiver:
            journey.next = start
        if end == "commit":
            control.commit(txn)
        elif end == "roll back":
            control.roll_back(txn)
        else:
            # An outcome outside of the transaction is its end (AMQP 1.0 §4.4.2).
            receiver.settle(Accepted(), journey.unsettled[0])
        if not control.detached:
            control.close()
        # Of the others it is too late to say anything.
        journey.unsettled.clear()

    def flood(self) -> None:
        """Much comes at once, and something happens while chunks of it are half made."""
        there = self.attached()
        actor = self.some_actor()
        if not there or actor.client.handler.output.paused:
            return
        journey = self.random.choice(there)[0]
        stream, partition = self.net.space.nodes[journey.stream], journey.partition
        assert isinstance(stream, Stream)
        sender = actor.client.sender(f"{stream.address}::{partition}", name=f"flood-{self.step}")
        for _ in range(min(10, sender.link.credit)):
            self.number += 1
            payload = encode(Data(value=b"%d" % self.number + b" " * LARGE))
            self.published.add(payload)
            sender.link.send(payload, settled=True)
        for _, receiver in there:
            receiver.link.set_credit(10)
        for client in list(self.net.clients):
            client.step()
        for _ in range(self.random.randrange(6)):
            if self.net.later:
                self.net.later.pop(0)()
        event = self.random.choice(("nothing", "nothing", "leave", "detach", "purge"))
        self.say(f"{stream.address}::{partition}: {event}")
        self.happened["half made"] += self.net.broker.agenda.chunk_budget.held > 0
        if event == "leave":
            self.leave()
        elif event == "detach" and there:
            journey, receiver = self.random.choice(there)
            receiver.link.detach(closed=True)
            # What is on its way to it is lost, and will come again.
            journey.leave()
        elif event == "purge":
            self.net.broker.begin_pass(self.net.now)
            stream.clear()
            self.note_purge(stream)
            self.net.broker.finish_pass()
        self.net.run()
        if actor in self.actors and not sender.detached:
            sender.close()

    def hear_journeys(self, busy: bool = False) -> None:
        """Everything that has come is what it has to be. Unless they are `busy`, journeys settle
        it, and do what follows from it."""
        for journey in list(self.journeys):
            receiver, actor = journey.receiver, journey.actor
            if receiver is None or actor is None:
                continue
            for delivery in receiver.take():
                before = journey.next
                start = journey.take(delivery, self.ledger, self.published)
                after, journey.next = journey.next, before
                self.check_gap(journey, start)
                journey.next = after
                stream = self.net.space.nodes.get(journey.stream)
                if isinstance(stream, Stream) and stream.incarnation == journey.incarnation:
                    assert journey.end <= stream.range(journey.partition)[1], f"{journey}"
                    self.ends[journey.part] = max(journey.end, self.ends.get(journey.part, 0))
                self.happened["chunks"] += 1
                # It took more than a turn to gather.
                self.happened["large chunks"] += len(delivery.payload) > 300_000
                if not delivery.remote_settled:
                    journey.unsettled.append(delivery)
            if receiver.detached:
                journey.leave()
                self.note_end(journey, receiver.error)
            elif actor not in self.actors or receiver.link.session is not actor.client.session:
                journey.leave()
            if busy:
                continue
            if journey.receiver is not None and journey.unsettled and self.random.random() < 0.8:
                receiver.settle(self.random.choice((Accepted(), Released())), *journey.unsettled)
                journey.unsettled.clear()
            if journey.holder and self.random.random() < 0.2:
                self.follow(journey)
            if journey.arrived and self.random.random() < 0.2 and journey in self.journeys:
                self.happened["arrived"] += 1
                if journey.receiver is not None and not actor.client.handler.output.paused:
                    journey.receiver.close()
                    assert not journey.receiver.deliveries, f"{journey} had all"
                    self.give_up(journey)

    def hear_records(self, actor: Actor) -> None:
        """Records that come one by one are the same."""
        for receiver in actor.receivers:
            attach = receiver.link.remote_attach
            granted = {} if attach is None else attach.properties or {}
            incarnation = granted.get("ferrymq:incarnation")
            if isinstance(incarnation, UUID):
                for delivery in receiver.deliveries:
                    if delivery.context is None:
                        self.check_record(receiver, incarnation, delivery.payload)

    def check_record(self, receiver: Receiver, incarnation: UUID, payload: bytes) -> None:
        """One behind the other, and none left out but by a filter."""
        annotations = message_annotations(payload)
        number, offset = annotations["x-opt-partition"], annotations["x-opt-offset"]
        assert isinstance(number, int) and isinstance(offset, int)
        places = self._places.setdefault(receiver, {})
        expected = places.get(number, offset)
        filtered = bool(receiver.remote_source.filter)
        assert offset == expected or (filtered and offset > expected), f"{offset}, not {expected}"
        places[number] = offset + 1
        known = self.ledger.of((incarnation, number)).get(offset)
        if known is not None:
            assert annotations["x-opt-enqueued-time"] == known.time
            assert number_of(payload) == number_of(known.payload)
        self.happened["records"] += 1

    def follow(self, journey: Journey) -> None:
        """What was copied need not be held."""
        stream = self.net.space.nodes.get(journey.stream)
        held = self.holds.get(journey.stream, {}).get(journey.holder)
        if held is None or not isinstance(stream, Stream):
            return
        if stream.incarnation == journey.incarnation:
            offset = max(journey.next, held.offsets[journey.partition])
            assert self.ask_hold(stream, journey.holder, {journey.partition: offset})

    def note_end(self, journey: Journey, error: Error | None) -> None:
        """The broker has ended a link."""
        condition = None if error is None else error.condition
        self.happened[f"link: {condition}"] += 1
        info = {} if error is None or error.info is None else error.info
        if condition == TRIMMED:
            assert not journey.forgiving
            assert info["expected"] == journey.next and info["partition"] == journey.partition
            first = info["first"]
            assert isinstance(first, int) and first > journey.next
            self.check_gap(journey, first)
            journey.next = first
        elif condition == TOO_LARGE:
            offset = info["offset"]
            assert isinstance(offset, int) and offset >= journey.next
            assert journey.selector is not None or journey.forgiving or offset == journey.next
            record = self.ledger.of(journey.part).get(offset)
            assert record is None or len(record.payload) + 100 > journey.largest > 0
            journey.largest = 0
        elif condition == "amqp:resource-deleted":
            self.give_up(journey)
        else:
            assert condition in (None, "amqp:link:stolen"), error

    def check_nobody_waits(self) -> None:
        """Who has credit has had everything."""
        for journey, receiver in self.attached():
            stream = self.net.space.nodes[journey.stream]
            assert isinstance(stream, Stream)
            if receiver.link.credit == 0:
                continue
            first, end = stream.range(journey.partition)
            goal = end if journey.until is None else min(end, journey.until)
            # Of a gap with nothing behind it nobody is told.
            untold = journey.forgiving and journey.selector is None and first == end
            assert journey.next >= goal or untold, f"{journey} could have more, up to {goal}"

    # -- the disk ----------------------------------------------------------------------------

    def restart(self) -> None:
        """What was seen is there again."""
        super().restart()
        if self.stored:
            self.look_through()

    def slow_disk(self) -> None:
        """For a while nothing gets to disk; it does in the end, or the broker stops before."""
        store, stream = self.net.store, self.some_stream()
        if store is None or stream is None:
            return
        store.held = True
        holds, purged = deepcopy(self.holds), dict(self.purged)
        asked: dict[int, int] | None = None
        purges = False
        for _ in range(self.random.randrange(1, 6)):
            what = self.random.choice(("send", "send", "read", "hold", "purge", "time", "write"))
            self.say(f"slow: {what}")
            if what == "send":
                self.send_slowly()
            elif what == "read" and self.attached():
                self.random.choice(self.attached())[1].credit(10)
            elif what == "hold" and asked is None and not purges:
                number = self.random.randrange(len(stream.partitions))
                asked = {number: self.random.randint(*stream.range(number))}
                items = [{"partition": p, "offset": o} for p, o in asked.items()]
                self.tell("HOLD", stream, {"holder": "slow", "offsets": items})
            elif what == "purge" and asked is None and not purges:
                purges = True
                self.tell("PURGE", stream, None)
                self.note_purge(stream)
            elif what == "time":
                self.net.advance(self.random.choice((0.01, 0.5, 2.0)))
            elif what == "write" and store.batch is not None:
                # One batch, and what has come meanwhile is in the next.
                store.held = False
                store.complete()
                store.held = True
                self.net.broker.on_stable(self.net.now)
                self.net.run()
            self.hear_journeys(True)
            self.check_on_disk(store)
        stops = self.random.random() < 0.5
        if not stops:
            store.release()
            self.net.run()
        answers = [read_answer(delivery.payload) for delivery in self.keeper.receiver.deliveries]
        if not answers:
            # It has not happened.
            assert stops or (asked is None and not purges)
            self.holds, self.purged = holds, purged
        else:
            assert [answer.status for answer in answers] == [200], answers
            self.keeper.receiver.settle(Accepted())
            if asked is not None:
                self.note_hold(stream, "slow", asked)
        if stops:
            self.say("the broker stops")
            store.held = False
            self.restart()
            self.happened["lost"] += 1

    def check_on_disk(self, store: ManualStore) -> None:
        """Nobody can see what is not on disk."""
        for name in STREAMS:
            stream = self.net.space.nodes.get(name)
            for partition in stream.partitions if isinstance(stream, Stream) else ():
                id = int(partition.store_id)
                for offset in range(*partition.stream.range(partition.number)):
                    assert (RECORD, id, offset) in store.records, f"{partition} shows {offset}"

    def send_slowly(self) -> None:
        """A message that is not known to be there before it is on disk."""
        senders = [
            sender
            for actor in self.actors
            for sender in actor.senders
            if not sender.detached and sender.link.credit > 0 and sender.remote_target.address
        ]
        if senders:
            sender = self.random.choice(senders)
            self.number += 1
            sections = self.message(self.number, False)
            self.forget_deadlines()
            sender.send_sections(*sections, settled=sender.link.always_settled)

    def tell(self, operation: str, stream: Stream, body: object) -> None:
        """Ask, and do not wait for the answer."""
        sections = request_sections(
            operation,
            "stream",
            stream.address,
            body,
            reply_to=self.keeper.reply_to,
            message_id="slow",
        )
        self.keeper.sender.send_sections(*sections)
