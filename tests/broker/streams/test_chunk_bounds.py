"""What chunks may take of the broker, whoever asks for how many: of its memory, and of a pass."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ferrymq.engine.link import Link
from ferrymq_broker.nodes.chunk_budget import MOST, SHARE
from ferrymq_broker.nodes.streams.stream import Stream
from ferrymq_broker.store.tables import RECORD
from ferrymq_broker.transactions.transaction import TransactionLimits
from ferrymq_broker.values.policy import StreamPolicy
from tests.broker.harness import Client, Network, Receiver
from tests.broker.streams.chunk_kit import chunks, covered, read_chunks, records
from tests.broker.streams.disk import crash, declare_stored, held, stored_network
from tests.broker.streams.kit import coloured, declare, numbered, read
from tests.broker.transactions.kit import Controller, acquire

MIB = 1024 * 1024
# Records of the streams in these tests; all of them are more than any chunk has.
COUNT = 2000
SIZE = 10_000
# What a reader gathers in one turn, and a record.
SLICE = 256 * 1024 + SIZE


@pytest.fixture
def net() -> Network:
    """A broker without a store: what these tests count is all in memory."""
    return Network(memory=True)


@pytest.fixture
def full(net: Network) -> Stream:
    """A stream of 20 MB."""
    stream = declare(net)
    sender = net.connect().sender("s")
    for _ in range(0, COUNT, 100):
        sender.send(*[bytes(SIZE)] * 100, settled=True)
    return stream


def passes(net: Network, most: int = 100_000) -> None:
    """The broker goes on, and nothing moves in the network."""
    while net.later and most:
        most -= 1
        net.later.pop(0)()


def grown(net: Network, before: int) -> int:
    """Bytes in memory beside what there was before."""
    return int(net.broker.agenda.held) - before


def test_all_readers_together_have_a_share_of_a_pass(net: Network, full: Stream) -> None:
    before = net.broker.agenda.held
    client = net.connect()
    readers = [read_chunks(client, credit=0) for _ in range(30)]
    for reader in readers:
        reader.link.set_credit(1)
    client.step()
    assert 0 < grown(net, before) <= SHARE + SLICE
    most = 0
    while net.later:
        last = grown(net, before)
        passes(net, 1)
        most = max(most, grown(net, before) - last)
    assert 0 < most <= SHARE + SLICE
    net.run()
    assert all(covered(reader)[0][0] == 0 and len(chunks(reader)) == 1 for reader in readers)
    assert grown(net, before) == 0


def test_each_of_many_readers_has_its_turn(net: Network, full: Stream) -> None:
    """Whoever asks for large chunks keeps nobody from small ones."""
    greedy = net.connect()
    for _ in range(30):
        read_chunks(greedy, credit=0).link.set_credit(50)
    greedy.step()
    modest = net.connect()
    reader = read_chunks(modest, credit=0, records=10)
    reader.link.set_credit(1)
    modest.step()
    # As many passes as there are readers.
    passes(net, 31)
    modest.step()
    assert covered(reader) == [(0, 10)]


def test_who_takes_nothing_leaves_room_for_others(net: Network, full: Stream) -> None:
    before = net.broker.agenda.held
    idle = [net.connect() for _ in range(10)]
    waiting = [[read_chunks(client, credit=0) for _ in range(10)] for client in idle]
    for client, readers in zip(idle, waiting, strict=True):
        for reader in readers:
            reader.link.set_credit(1)
        client.step()
        # The network takes nothing more, with some chunks half made.
        passes(net, 10)
        client.pause()
    passes(net)
    assert 0 < grown(net, before) <= MOST + SLICE
    # Others have chunks all the same.
    reader = read_chunks(net.connect())
    assert [offset for offset, _ in records(reader)] == list(range(COUNT))
    for client in idle:
        client.resume()
    net.run()
    assert all(covered(reader)[0][0] == 0 for readers in waiting for reader in readers)
    assert grown(net, before) == 0
    # Those whose clients have taken them count no more, although they give no credit.
    assert len(read_chunks(net.connect(), records=1500).deliveries[0].payload) > 14 * MIB


def test_chunks_that_wait_for_windows_count(net: Network, full: Stream) -> None:
    """A session that takes one frame has the rest of a chunk wait in the broker."""
    clients = [net.connect(incoming_window=1) for _ in range(20)]
    readers = [read_chunks(client, credit=0) for client in clients]
    for client, reader in zip(clients, readers, strict=True):
        reader.link.set_credit(1)
        client.step()
        passes(net)
    net.run()
    sizes = [len(reader.deliveries[0].payload) for reader in readers]
    assert sizes[0] > 15 * MIB and sizes[-1] <= SLICE
    assert sum(sizes) <= MOST + 16 * MIB + 20 * SLICE
    for client in clients:
        client.lose()
    assert net.broker.agenda.chunk_budget.held == 0


def test_nothing_is_made_for_a_transaction_that_takes_no_more(net: Network, full: Stream) -> None:
    net.broker.transaction_limits = TransactionLimits(work=2)
    before = net.broker.agenda.held
    client = net.connect()
    control = Controller(client)
    reader = read_chunks(client, credit=0, records=100)
    txn = control.declare()
    acquire(reader, txn, 5)
    assert covered(reader) == [(0, 100)]
    assert grown(net, before) == 0
    control.commit(txn)
    assert covered(reader)[:5] == [(first, first + 100) for first in range(0, 500, 100)]


def lose(net: Network, client: Client, stream: Stream) -> None:
    client.lose()


def detach(net: Network, client: Client, stream: Stream) -> None:
    link: Link
    for link in client.links:
        link.detach(closed=True)


def end(net: Network, client: Client, stream: Stream) -> None:
    client.session.end()


def delete(net: Network, client: Client, stream: Stream) -> None:
    net.space.remove(stream)


def purge(net: Network, client: Client, stream: Stream) -> None:
    stream.clear()


def trim(net: Network, client: Client, stream: Stream) -> None:
    stream.change_policy(StreamPolicy(max_records=10))


def grow(net: Network, client: Client, stream: Stream) -> None:
    stream.change_policy(StreamPolicy(partitions=5))


def nothing(net: Network, client: Client, stream: Stream) -> None:
    pass


@pytest.mark.parametrize("forgiving", [False, True])
@pytest.mark.parametrize("parts", [1, 5])
@pytest.mark.parametrize("event", [nothing, lose, detach, end, delete, purge, trim, grow])
def test_whatever_happens_to_half_a_chunk_nothing_is_left_of_it(
    net: Network,
    full: Stream,
    event: Callable[[Network, Client, Stream], None],
    parts: int,
    forgiving: bool,
) -> None:
    agenda = net.broker.agenda
    before = agenda.held
    client = net.connect()
    reader = read_chunks(client, credit=0, forgiving=forgiving)
    reader.link.set_credit(9)
    client.step()
    passes(net, parts)
    assert grown(net, before) > 0 and reader.deliveries == []
    event(net, client, full)
    net.finish()
    assert agenda.chunk_budget.held == 0
    assert agenda.held == sum(partition.log.bytes for partition in full.partitions)
    if event in (nothing, grow):
        assert [offset for offset, _ in records(reader)] == list(range(COUNT))
    elif event in (purge, trim):
        # What had been read is told, and then that the rest is gone.
        assert covered(reader)[0][0] == 0 and 0 < covered(reader)[0][1] < COUNT
        assert reader.detached is not forgiving
    # It is not wanted any more, and costs nothing.
    passes(net)
    assert not agenda.chunk_budget.waiting


@pytest.mark.parametrize("how", ["damaged", "missing"])
def test_a_damaged_record_in_the_middle_leaves_nothing_in_memory(how: str) -> None:
    net, disk = stored_network()
    stream = declare_stored(net)
    sender = net.connect().sender("s")
    for _ in range(10):
        sender.send(*[bytes(SIZE)] * 100)
        disk.write_all()
    disk.apply()
    key = (RECORD, stream.partitions[0].store_id, 700)
    if how == "damaged":
        disk.damaged = {key}
    else:
        del disk.records[key]
    net, disk, stream = crash(disk, StreamPolicy())
    reader = read_chunks(net.connect())
    assert covered(reader) == [(0, 700)]
    assert reader.error is not None and reader.error.condition == "ferrymq:record-damaged"
    assert (net.broker.agenda.held, net.broker.agenda.chunk_budget.held) == (held(stream), 0)


def test_readers_that_are_gone_have_no_turns(net: Network) -> None:
    declare(net)
    sender = net.connect().sender("s")
    for _ in range(3):
        sender.send(*[b"blue"] * 500, settled=True)
    sender.send_sections(*coloured("red", b"here"))
    visitor = net.connect()
    links: list[Receiver] = []
    for _ in range(100):
        links.append(read(visitor, "s", selector="colour = 'red'", credit=0))
        links[-1].link.set_credit(1)
    visitor.step()
    passes(net)
    for receiver in links:
        receiver.link.detach(closed=True)
    visitor.step()
    reader = read(net.connect(), "s", selector="colour = 'red'")
    net.advance(0.003)
    assert len(reader.deliveries) == 1


def test_chunks_come_in_order_whatever_the_sizes(net: Network) -> None:
    declare(net)
    sender = net.connect().sender("s")
    for number in range(0, 5000, 500):
        sender.send(*numbered(500, number), settled=True)
    client = net.connect()
    sizes = (1, 7, 64, 1023, 1024, 1025, 4999, 5000)
    for reader, size in [(read_chunks(client, records=size), size) for size in sizes]:
        assert [offset for offset, _ in records(reader)] == list(range(5000))
        assert all(chunk.count == size for chunk in chunks(reader)[:-1])
