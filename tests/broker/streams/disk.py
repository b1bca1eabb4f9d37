"""A store in the hand of a test: it says when a batch is on disk, when records can be read, when
everything else is lost; and streams that are stored there."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ferrymq_broker.nodes.streams.partition import StreamPartition
from ferrymq_broker.nodes.streams.stored import decode_partition
from ferrymq_broker.nodes.streams.stored_log import StoredLog
from ferrymq_broker.nodes.streams.stream import Stream
from ferrymq_broker.store.errors import StoreDamaged
from ferrymq_broker.store.map_values import decode_map, encode_map
from ferrymq_broker.store.records import Record
from ferrymq_broker.store.store import Store
from ferrymq_broker.store.tables import NODE, PARTITION, RECORD
from ferrymq_broker.values.policy import StreamPolicy
from tests.broker.harness import Network
from tests.broker.stores import Key, apply


class Disk(Store):
    """Batches are written by `write`, applied by `apply`; `damaged` records cannot be read."""

    def __init__(self, net: Network, records: dict[Key, bytes] | None = None) -> None:
        self.net = net
        self.changes = net.broker.agenda.changes
        self._applied = 0
        self.records = dict(records or {})
        self.damaged: set[Key] = set()
        # The batch that is being written, and those that are on disk and not applied.
        self.taken: bytes | None = None
        self.stable: list[tuple[int, bytes]] = []
        self.on_taken: Callable[[], None] | None = None
        self.reads = 0

    def start(self) -> None:
        """Let the broker use it."""
        self.changes.enabled = True
        self.net.broker.keep(self)

    @property
    def applied(self) -> int:
        return self._applied

    def push(self) -> None:
        if self.taken is None and self.changes.count:
            self.taken = b"".join(self.changes.close())
            if self.on_taken is not None:
                self.on_taken()

    def write(self) -> None:
        """The batch that was taken is on disk now; the broker hears of it."""
        if self.taken is not None:
            self.stable.append((self.changes.number - 1, self.taken))
            self.taken = None
            self.net.broker.on_stable(self.net.now)
            self.push()
        self.net.run()

    def write_all(self) -> None:
        """Everything that has changed is on disk."""
        self.push()
        while self.taken is not None:
            self.write()

    def apply(self) -> None:
        """All that is on disk can be read."""
        for number, batch in self.stable:
            self._applied = number
            apply(batch, self.records)
        self.stable.clear()

    def get(self, table: int, id: int, number: int) -> bytes | None:
        self.reads += 1
        if (table, id, number) in self.damaged:
            raise StoreDamaged("its checksum is wrong")
        return self.records.get((table, id, number))

    def scan(self, table: int) -> Iterator[Record]:
        for key in sorted(self.records):
            if key[0] == table:
                yield Record(key[1], key[2], self.records[key])

    def count(self, table: int | None = None) -> int:
        """How many records of a table, or of all, there are on disk, once all is applied."""
        return sum(table is None or key[0] == table for key in self.records)


def stored_network(records: dict[Key, bytes] | None = None) -> tuple[Network, Disk]:
    """A broker with a disk that has these records."""
    net = Network()
    net.broker.begin_pass(net.now)
    disk = Disk(net, records)
    disk.start()
    return net, disk


def declare_stored(net: Network, address: str = "s", **settings: int) -> Stream:
    """A new stream that is stored, as soon as the disk writes."""
    policy = StreamPolicy(**settings)  # type: ignore[arg-type]
    stream = net.space.create(address, policy)
    assert isinstance(stream, Stream)
    changes = net.broker.agenda.changes
    if stream.store_id == 0:
        stream.keep_stored(changes.new_id())
    changes.put(
        NODE, stream.store_id, 0, encode_map({"address": address, **stream.describe_stored()})
    )
    return stream


def recover(net: Network, disk: Disk, policy: StreamPolicy) -> Stream:
    """The stream that is on a disk, in a broker that knows nothing of it."""
    node = next(iter(disk.scan(NODE)))
    fields = decode_map(node.value)
    stream = Stream(str(fields["address"]), net.space, policy)
    stream.restore(node.id, fields)
    partitions: dict[int, StreamPartition] = {}
    for id, _, value in disk.scan(PARTITION):
        known = decode_partition(value)
        assert known.stream == node.id
        partitions[id] = stream.restore_partition(id, known)
    for id, offset, value in disk.scan(RECORD):
        broken = (RECORD, id, offset) in disk.damaged
        partitions[id].restore_record(offset, b"" if broken else value)
    stream.restored()
    # It is stored, and not to be again.
    net.space.nodes[stream.address] = stream
    return stream


def crash(disk: Disk, policy: StreamPolicy) -> tuple[Network, Disk, Stream]:
    """What is not on disk is lost; another process begins with what is."""
    disk.taken = None
    disk.apply()
    net, again = stored_network(disk.records)
    net.now = disk.net.now
    net.broker.begin_pass(net.now)
    again.damaged = disk.damaged
    stream = recover(net, again, policy)
    net.broker.finish_pass()
    return net, again, stream


def log_of(stream: Stream, partition: int = 0) -> StoredLog:
    """The log of a partition that is stored."""
    log = stream.partitions[partition].log
    assert isinstance(log, StoredLog)
    return log


def squeeze(stream: Stream, size: int) -> None:
    """Keep no more than so many bytes in memory, of what is new and of what was read."""
    for number, partition in enumerate(stream.partitions):
        log = log_of(stream, number)
        log.cache_bytes = size
        log.pages.most = size
        partition.keep(stream.policy)


def held(stream: Stream) -> int:
    """Bytes of messages that its partitions have in memory."""
    logs = [log_of(stream, number) for number in range(len(stream.partitions))]
    return sum(log.memory + log.pages.bytes for log in logs)
