"""What holders and keepers do with streams, and what has to be there then.

Of each hold the play knows where it is, without asking the broker. So after every step it can say
what must be in a partition still: what is held, and what no limit lets go; and what must not.
"""

from __future__ import annotations

from uuid import UUID

from ferrymq_broker.config.nodes import policy_attributes
from ferrymq_broker.nodes.streams.partition import StreamPartition
from ferrymq_broker.nodes.streams.segments import ENDLESS
from ferrymq_broker.nodes.streams.stored_log import StoredLog
from ferrymq_broker.nodes.streams.stream import Stream
from ferrymq_broker.values.policy import StreamPolicy
from ferrymq_types.messaging import Data, Header, MessageAnnotations
from ferrymq_types.unions import Section
from tests.broker.chaos.keeping import Keeping
from tests.broker.chaos.ledger import Ledger, Part, Record
from tests.broker.chaos.world import STREAMS, stream_policy
from tests.broker.harness import encode

HOLDERS = ("h0", "h1", "h2")
MAX_PARTITIONS = 4
# Some that do not fit into one slice of a reader of chunks.
LARGE = 100_000
# Bytes that a stored partition keeps in memory, in some plays: next to nothing.
TIGHT = 700


class Held:
    """What a holder has been told that it holds: offsets by partition; `whole` is whether it has
    those of partitions to come."""

    def __init__(self) -> None:
        self.offsets: dict[int, int] = {}
        self.whole = False


class Holding(Keeping):
    """Hold, move on, release; purge streams, change their limits, add partitions."""

    def __init__(self, seed: int, steps: int, stored: bool = False, streams: bool = False) -> None:
        super().__init__(seed, steps, stored, streams)
        self.ledger = Ledger()
        # What clients have sent.
        self.published: set[bytes] = set()
        # By stream: which one it is, and its holds.
        self.incarnations: dict[str, UUID] = {
            name: node.incarnation
            for name, node in self.net.space.nodes.items()
            if isinstance(node, Stream)
        }
        self.holds: dict[str, dict[str, Held]] = {}
        # What streams kept when they were looked at last, and how many partitions they had.
        self.policies: dict[str, StreamPolicy] = {}
        # Where partitions began then, and where they ended; where somebody was told that they end,
        # and before which offset all is purged.
        self.firsts: dict[Part, int] = {}
        self.ends: dict[Part, int] = {}
        self.nexts: dict[Part, int] = {}
        self.purged: dict[Part, int] = {}
        # How many messages are large.
        self.large = self.random.choice((0.03, 0.03, 0.3)) if streams else 0.0
        self.tight = stored and self.random.random() < 0.5

    # -- what is sent ------------------------------------------------------------------------

    def address(self, sending: bool) -> str:
        """In a play of streams mostly one of these, or a partition."""
        if not self.streams or self.random.random() < 0.25:
            return super().address(sending)
        name = self.random.choice(STREAMS)
        return f"{name}::{self.random.randrange(2)}" if self.random.random() < 0.5 else name

    def message(self, number: int, anonymous: bool) -> list[Section]:
        """Some for one partition, some large."""
        sections = super().message(number, anonymous)
        if self.streams:
            plain = not any(isinstance(section, MessageAnnotations) for section in sections)
            if plain and self.random.random() < 0.3:
                place: dict[str | int, object] = {"x-opt-partition": self.random.randrange(3)}
                at = 1 if isinstance(sections[0], Header) else 0
                sections.insert(at, MessageAnnotations(value=place))
            if self.random.random() < self.large:
                sections[-1] = Data(value=b"%d" % number + b" " * LARGE)
        self.published.add(encode(*sections))
        return sections

    # -- who manages streams -----------------------------------------------------------------

    def some_stream(self) -> Stream | None:
        node = self.net.space.nodes.get(self.random.choice(STREAMS))
        return node if isinstance(node, Stream) else None

    def purge_stream(self) -> None:
        """All records go, held or not."""
        stream = self.some_stream()
        if stream is None:
            return
        self.say(stream.address)
        answer = self.keeper.ask("PURGE", "stream", stream.address)
        assert answer.status == 200, answer
        self.note_purge(stream)

    def note_purge(self, stream: Stream) -> None:
        """Everything up to now is gone, and holds are behind it."""
        for partition in stream.partitions:
            log = partition.log
            number = int(partition.number)
            end = int(log.end if isinstance(log, StoredLog) else log.next)
            self.purged[stream.incarnation, number] = end
            for held in self.holds.get(stream.address, {}).values():
                if held.offsets.get(number, end) < end:
                    held.offsets[number] = end

    def update_stream(self) -> None:
        """Another limit, or more partitions."""
        stream = self.some_stream()
        if stream is None:
            return
        before = len(stream.partitions)
        partitions = before
        if self.random.random() < 0.3 and before < MAX_PARTITIONS:
            partitions += 1
        attributes = policy_attributes(stream_policy(self.random, partitions))
        attributes["segment-bytes"] = self.random.choice((1024, 1024 * 1024))
        if self.random.random() < 0.6:
            key = self.random.choice(
                ("max-records", "max-bytes", "max-age", "segment-bytes", "partitions")
            )
            attributes = {key: attributes[key], "segment-bytes": attributes["segment-bytes"]}
        self.say(f"{stream.address} {attributes}")
        answer = self.keeper.ask("UPDATE", "stream", stream.address, attributes)
        assert answer.status == 200, answer
        for held in self.holds.get(stream.address, {}).values():
            if held.whole:
                for number in range(before, len(stream.partitions)):
                    held.offsets[number] = 0

    # -- holders -----------------------------------------------------------------------------

    def hold(self) -> None:
        """Somebody wants records to stay, from some offsets on, which may be none."""
        stream = self.some_stream()
        if stream is None:
            return
        count = len(stream.partitions)
        numbers = self.random.choice(
            (range(count), range(count), [self.random.randrange(count)], [count])
        )
        offsets = {}
        for number in numbers:
            first, next = (0, 0) if number == count else stream.range(number)
            offsets[number] = max(
                0, self.random.choice((first, next, self.random.randint(first, next), first - 1))
            )
            if self.random.random() < 0.05:
                offsets[number] = next + 1
        self.ask_hold(stream, self.random.choice(HOLDERS), offsets)

    def move_hold(self) -> None:
        """A holder has got further."""
        stream = self.some_stream()
        holds = {} if stream is None else self.holds.get(stream.address, {})
        names = [name for name in HOLDERS if name in holds]
        if stream is None or not names:
            return
        name = self.random.choice(names)
        offsets = {}
        for number, offset in holds[name].offsets.items():
            next = stream.range(number)[1]
            if self.random.random() < 0.7:
                offsets[number] = self.random.choice((next, self.random.randint(offset, next)))
        if offsets:
            assert self.ask_hold(stream, name, offsets), "a hold could not go on"

    def ask_hold(self, stream: Stream, holder: str, offsets: dict[int, int]) -> bool:
        """HOLD; whether it was granted, which has to be so if there are such offsets."""
        self.say(f"{holder} holds {stream.address} from {offsets}")
        count = len(stream.partitions)
        known = [number for number in offsets if number < count]
        fits = all(
            stream.range(number)[0] <= offsets[number] <= stream.range(number)[1]
            for number in known
        )
        items = [{"partition": p, "offset": o} for p, o in offsets.items()]
        answer = self.keeper.ask(
            "HOLD", "stream", stream.address, {"holder": holder, "offsets": items}
        )
        expected = {404} if len(known) < len(offsets) else {200}
        if not fits:
            expected = {409} | (expected - {200})
        assert answer.status in expected, answer
        if answer.status != 200:
            return False
        self.note_hold(stream, holder, offsets)
        self.happened["held"] += 1
        return True

    def note_hold(self, stream: Stream, holder: str, offsets: dict[int, int]) -> None:
        """The broker has said yes."""
        held = self.holds.setdefault(stream.address, {}).setdefault(holder, Held())
        held.offsets |= offsets
        if len(held.offsets) == len(stream.partitions):
            held.whole = True

    def release(self) -> None:
        """A holder needs nothing any more."""
        stream = self.some_stream()
        if stream is not None:
            self.ask_release(stream.address, self.random.choice(HOLDERS))

    def ask_release(self, stream: str, holder: str) -> None:
        """RELEASE of what there may be."""
        node = self.net.space.nodes.get(stream)
        if not isinstance(node, Stream) or node.incarnation != self.incarnations.get(stream):
            return
        self.say(f"{holder} holds nothing of {stream}")
        there = self.holds.get(stream, {}).pop(holder, None) is not None
        answer = self.keeper.ask("RELEASE", "stream", stream, {"holder": holder})
        assert answer.status == (200 if there else 404), answer

    # -- what there is -----------------------------------------------------------------------

    def locate(self) -> None:
        """Somebody plans what to read."""
        stream = self.some_stream()
        if stream is None:
            return
        number = self.random.randrange(len(stream.partitions))
        first, next = stream.range(number)
        offset = self.random.randint(first, next)
        most = (0, 300, 1000, 200_000)
        sizes = sorted(self.random.randint(0, self.random.choice(most)) for _ in range(2))
        time = self.net.wall - self.random.choice((0, 1, 500, 1000, 5000, 1_000_000))
        positions: list[dict[str, object]] = [
            {"partition": number, "offset": offset, "bytes": size} for size in sizes
        ]
        positions.append({"partition": number, "time": time})
        answer = self.keeper.ask("LOCATE", "stream", stream.address, {"positions": positions})
        assert answer.status == 200, answer
        found = answer.map()["offsets"]
        assert isinstance(found, list)
        self.say(f"{stream.address}::{number} {positions} {found}")
        records = self.ledger.of((stream.incarnation, number))
        self.happened["located"] += next > first
        assert found[0] <= found[1]
        for size, end in zip(sizes, found, strict=False):
            assert min(offset + 1, next) <= end <= next
            if not self.stored:
                exact = offset
                while exact < next and size >= len(records[exact].payload):
                    size -= len(records[exact].payload)
                    exact += 1
                assert end == max(exact, min(offset + 1, next))
        later = [at for at in range(first, next) if records[at].time >= time]
        assert found[2] == (later[0] if later else next)

    def squeeze(self) -> None:
        """Keep next to nothing of stored streams in memory, if that is what is played."""
        if not self.tight:
            return
        for name in STREAMS:
            stream = self.net.space.nodes.get(name)
            for partition in stream.partitions if isinstance(stream, Stream) else ():
                log = partition.log
                if isinstance(log, StoredLog) and log.cache_bytes != TIGHT:
                    log.cache_bytes = TIGHT
                    log.pages.most = TIGHT
                    partition.keep(partition.stream.policy)

    def look_at_streams(self) -> None:
        """What must be there is there, and nothing else."""
        self.squeeze()
        for name in STREAMS:
            stream = self.net.space.nodes.get(name)
            if not isinstance(stream, Stream):
                self.holds.pop(name, None)
                continue
            if self.incarnations.get(name) != stream.incarnation:
                self.incarnations[name] = stream.incarnation
                self.policies.pop(name, None)
                self.holds.pop(name, None)
            policy = stream.policy
            policies = (policy, self.policies.get(name, policy))
            for partition in stream.partitions:
                self.look_at_partition(partition, policies)
            self.policies[name] = policy
            expected = {
                holder: [held.offsets.get(n) for n in range(len(stream.partitions))]
                for holder, held in self.holds.get(name, {}).items()
            }
            found = {hold["holder"]: hold["offsets"] for hold in stream.holds.describe()}
            assert found == expected, f"{name} is held at {found}, should be at {expected}"

    def look_at_partition(
        self, partition: StreamPartition, policies: tuple[StreamPolicy, StreamPolicy]
    ) -> None:
        """Put what is new in the ledger; limits and holds are what they say."""
        stream = partition.stream
        part = (stream.incarnation, int(partition.number))
        first, next = stream.range(part[1])
        end = max(self.nexts.get(part, 0), self.ends.get(part, 0))
        assert next >= end, f"{partition} went back from {end}"
        for offset in range(max(first, self.nexts.get(part, 0)), next):
            self.see(partition, part, offset)
        self.nexts[part] = next
        held = min(
            (
                one.offsets[part[1]]
                for one in self.holds.get(stream.address, {}).values()
                if part[1] in one.offsets
            ),
            default=ENDLESS,
        )
        assert partition.held == held
        assert first <= max(held, self.purged.get(part, 0)), f"{partition} is held from {held} on"
        before = self.firsts.get(part, 0)
        assert first >= before, f"{partition} began at {before}"
        self.firsts[part] = first
        if first > before and first > self.purged.get(part, 0):
            last = self.ledger.of(part).get(first - 1)
            # A record does not say how long ago that was, if the wall clock was set since.
            known = last is not None and not self.net.steps
            age = self.net.wall - last.time if known else ENDLESS
            assert any(
                0 < policy.max_records <= next - first
                or 0 < policy.max_bytes <= partition.log.bytes
                or 0 < policy.max_age <= age
                for policy in policies
            ), f"{partition} began at {before}, and no limit says it should not"
        self.check_nothing_stays(partition, policies[0], held)

    def see(self, partition: StreamPartition, part: Part, offset: int) -> None:
        """The record of this offset, as it is in the log."""
        segment = partition.find(offset)
        index = offset - int(segment.first)
        formats = segment.formats or {}
        record = Record(segment.payloads[index], int(segment.times[index]), formats.get(index, 0))
        self.ledger.see(part, offset, record)
        assert record.payload in self.published, f"nobody has sent record {offset}"

    def check_nothing_stays(
        self, partition: StreamPartition, policy: StreamPolicy, held: int
    ) -> None:
        """The first records are there because limits or holds say so."""
        log = partition.log
        oldest = log.oldest()
        if oldest is None or oldest.first + oldest.count > held:
            return
        left = log.next - oldest.first - oldest.count
        assert not 0 < policy.max_records <= left, f"{partition} has too many records"
        assert not 0 < policy.max_bytes <= log.bytes - oldest.bytes, f"{partition} is too large"
        age = partition.agenda.now - oldest.moment
        assert not 0 < policy.max_age <= age, f"{partition} is too old"

    def look_through(self) -> None:
        """Every record of every stream is what it always was."""
        for name in STREAMS:
            stream = self.net.space.nodes.get(name)
            for partition in stream.partitions if isinstance(stream, Stream) else ():
                part = (partition.stream.incarnation, int(partition.number))
                for offset in range(*partition.stream.range(part[1])):
                    self.see(partition, part, offset)
