"""Reading in chunks: many records in a transfer, as they were published, without gaps."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferrymq_codec.scalars import UInt, ULong
from ferrymq_types.messaging import Data, MessageAnnotations
from tests.broker.harness import Network, encode
from tests.broker.streams.chunk_kit import chunks, covered, read_chunks, records
from tests.broker.streams.kit import coloured, declare, granted, numbered, offsets, read
from tests.broker.transactions.kit import Controller, acquire

KIB = encode(Data(value=b"x" * 1000))


def fill(net: Network, count: int) -> None:
    """So many messages of a kilobyte."""
    sender = net.connect().sender("s")
    for number in range(count):
        sender.link.send(KIB, settled=True)
        if number % 500 == 499:
            net.run()
    net.run()


def pairs(start: int, end: int) -> list[tuple[int, bytes]]:
    """Offsets and bodies, as `numbered` makes them."""
    return list(zip(range(start, end), numbered(end - start, start), strict=True))


def test_what_is_there_comes_at_once(net: Network) -> None:
    stream = declare(net)
    client = net.connect()
    client.sender("s").send(*numbered(10))
    receiver = read_chunks(client)
    [chunk] = chunks(receiver)
    assert (chunk.first, chunk.next, chunk.end) == (0, 10, 10)
    assert records(receiver) == pairs(0, 10)
    assert [chunk.time(i) for i in range(10)] == [net.wall] * 10
    answer = granted(receiver)
    assert answer["ferrymq:first-offset"] == 0
    assert answer["ferrymq:incarnation"] == stream.incarnation
    client.sender("s").send(b"10")
    assert covered(receiver) == [(0, 10), (10, 11)]


def test_messages_are_as_they_were_published(net: Network) -> None:
    declare(net)
    client = net.connect()
    mine = encode(MessageAnnotations(value={"x-opt-offset": 7, "mine": True}), Data(value=b"a"))
    sender = client.sender("s")
    sender.link.send(mine, settled=True)
    sender.link.send(b"\x01opaque", settled=True, message_format=0xFFFF_FF00)
    net.run()
    # They come in one chunk, if they were there before.
    [chunk] = chunks(read_chunks(client))
    assert [chunk.payload(i) for i in range(2)] == [mine, b"\x01opaque"]
    assert [chunk.format(i) for i in range(2)] == [0, 0xFFFF_FF00]


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ({}, (16 * 1024 * 1024, 65536)),
        ({"bytes": ULong(5000)}, (5000, 65536)),
        ({"bytes": ULong(2**40), "records": UInt(2**32 - 1)}, (16 * 1024 * 1024, 65536)),
        ({"records": UInt(1)}, (16 * 1024 * 1024, 1)),
    ],
)
def test_what_is_granted(net: Network, asked: dict[str, object], answer: tuple[int, int]) -> None:
    declare(net)
    receiver = read(net.connect(), "s::0", properties={"ferrymq:chunks": asked})
    assert granted(receiver)["ferrymq:chunks"] == {"bytes": answer[0], "records": answer[1]}
    limited = read(
        net.connect(), "s::0", properties={"ferrymq:chunks": asked}, max_message_size=4000
    )
    limits = granted(limited)["ferrymq:chunks"]
    assert limits == {"bytes": 4000, "records": answer[1]}


def test_no_more_bytes_or_records_than_granted(net: Network) -> None:
    declare(net)
    client = net.connect()
    fill(net, 2500)
    few = read_chunks(client, records=7)
    assert covered(few)[:2] == [(0, 7), (7, 14)] and covered(few)[-1] == (2499, 2500)
    small = read_chunks(client, bytes=50_000)
    sizes = [len(delivery.payload) for delivery in small.deliveries]
    assert all(40_000 < size <= 50_000 for size in sizes[:-1]) and sizes[-1] <= 50_000
    assert [offset for offset, _ in records(small)] == list(range(2500))
    large = read_chunks(client, bytes=1_000_000)
    assert [chunk.count > 900 for chunk in chunks(large)] == [True, True, False]
    # One record at least, whatever its size.
    tiny = read_chunks(client, bytes=1, credit=3)
    assert covered(tiny) == [(0, 1), (1, 2), (2, 3)]


@pytest.mark.parametrize(
    ("properties", "name"),
    [
        ({"ferrymq:chunks": True}, "ferrymq:chunks"),
        ({"ferrymq:chunks": ULong(5)}, "ferrymq:chunks"),
        ({"ferrymq:chunks": {"bytes": ULong(0)}}, "bytes in the link property ferrymq:chunks"),
        ({"ferrymq:chunks": {"bytes": "much"}}, "bytes in the link property ferrymq:chunks"),
        ({"ferrymq:chunks": {"records": True}}, "records in the link property ferrymq:chunks"),
        ({"ferrymq:chunks": {"records": -1}}, "records in the link property ferrymq:chunks"),
        ({"ferrymq:until": "end"}, "ferrymq:until"),
        ({"ferrymq:until": -1}, "ferrymq:until"),
        ({"ferrymq:until": ULong(2**63)}, "ferrymq:until"),
        ({"ferrymq:until": False}, "ferrymq:until"),
    ],
)
def test_what_means_nothing_is_refused(
    net: Network, properties: dict[str, object], name: str
) -> None:
    declare(net)
    error = read(net.connect(), "s::0", properties=properties).error
    assert error is not None and error.condition == "amqp:invalid-field"
    assert name in (error.description or "")


@pytest.mark.parametrize("name", ["ferrymq:chunks", "ferrymq:until"])
def test_a_whole_stream_is_not_read_so(net: Network, name: str) -> None:
    declare(net, partitions=3)
    value: object = {} if name == "ferrymq:chunks" else 5
    error = read(net.connect(), "s", properties={name: value}).error
    assert error is not None and error.condition == "amqp:invalid-field"
    assert name in (error.description or "") and "s::0 to s::2" in (error.description or "")


def test_other_nodes_do_not_grant_it(net: Network) -> None:
    client = net.connect()
    net.declare("q")
    receiver = client.receiver("q", properties={"ferrymq:chunks": {}, "ferrymq:until": 5})
    assert not receiver.detached
    assert not {"ferrymq:chunks", "ferrymq:until"} & set(granted(receiver))


# -- the end ---------------------------------------------------------------------------------


def test_reading_ends_before_until(net: Network) -> None:
    declare(net)
    client = net.connect()
    sender = client.sender("s")
    sender.send(*numbered(5))
    receiver = read_chunks(client, start=ULong(2), until=8)
    assert granted(receiver)["ferrymq:until"] == 8
    sender.send(*numbered(20, 5))
    assert records(receiver) == pairs(2, 8)
    chunk = chunks(receiver)[-1]
    assert (chunk.next, chunk.end) == (8, 25) or chunk.next == 8
    # There is no more for it, and a drain says so.
    receiver.drain()
    assert (receiver.drained, receiver.link.credit) == (1, 0)


def test_records_one_by_one_end_there_too(net: Network) -> None:
    declare(net)
    client = net.connect()
    sender = client.sender("s")
    sender.send(*numbered(5))
    receiver = read(client, "s::0", ULong(2), properties={"ferrymq:until": 8})
    assert granted(receiver)["ferrymq:until"] == 8
    sender.send(*numbered(200, 5))
    assert offsets(receiver) == [2, 3, 4, 5, 6, 7]
    receiver.drain()
    assert receiver.drained == 1
    filtered = read(
        client, "s::0", selector="colour = 'red'", properties={"ferrymq:until": 100}, credit=0
    )
    filtered.link.set_credit(5)
    filtered.drain()
    assert (filtered.deliveries, filtered.drained) == ([], 1)


def test_nothing_comes_if_there_was_nothing_to_read(net: Network) -> None:
    declare(net)
    client = net.connect()
    client.sender("s").send(*numbered(5))
    receiver = read_chunks(client, start=ULong(3), until=3)
    receiver.drain()
    assert (receiver.deliveries, receiver.drained) == ([], 1)


# -- filters ---------------------------------------------------------------------------------


def test_a_filter_leaves_records_out_and_tells_how_far_it_got(net: Network) -> None:
    declare(net)
    client = net.connect()
    sender = client.sender("s")
    for number in range(10):
        sender.send_sections(*coloured("red" if number % 3 == 0 else "blue", b"%d" % number))
    receiver = read_chunks(client, selector="colour = 'red'")
    assert covered(receiver) == [(0, 10)]
    assert records(receiver) == [(0, b"0"), (3, b"3"), (6, b"6"), (9, b"9")]
    # What passes nothing is a chunk without records.
    sender.send_sections(*coloured("blue", b"10"))
    assert covered(receiver)[1:] == [(10, 11)] and chunks(receiver)[1].count == 0
    ended = read_chunks(client, start=ULong(1), until=3, selector="colour = 'red'")
    assert covered(ended) == [(1, 3)] and records(ended) == []


def test_much_that_is_left_out_is_told_in_between(net: Network) -> None:
    declare(net)
    client = net.connect()
    sender = client.sender("s")
    for _ in range(140):
        sender.send(*[b"blue"] * 500, settled=True)
    sender.send_sections(*coloured("red", b"here"))
    receiver = read_chunks(client, selector="colour = 'red'", credit=0)
    receiver.link.set_credit(9)
    client.step()
    # Others have their turn meanwhile.
    assert net.later
    net.run()
    assert covered(receiver) == [(0, 65_536), (65_536, 70_001)]
    assert records(receiver) == [(70_000, b"here")]


def test_a_large_chunk_keeps_no_other_reader_waiting(net: Network) -> None:
    declare(net)
    fill(net, 4000)
    client = net.connect()
    greedy = read_chunks(client, credit=0)
    other = read(client, "s", credit=0)
    greedy.link.set_credit(1)
    other.link.set_credit(1)
    net.run()
    assert covered(greedy) == [(0, 4000)] and len(other.deliveries) == 1
    assert other.deliveries[0].id < greedy.deliveries[0].id


# -- credit, sizes, memory ---------------------------------------------------------------------


def test_credit_counts_chunks(net: Network) -> None:
    declare(net)
    client = net.connect()
    client.sender("s").send(*numbered(100))
    receiver = read_chunks(client, records=10, credit=3)
    assert covered(receiver) == [(0, 10), (10, 20), (20, 30)]
    receiver.credit(1)
    assert covered(receiver)[-1] == (30, 40)
    receiver.drain()
    assert receiver.link.credit == 0


@pytest.mark.spec("2.6.7")
def test_a_drain_is_answered_when_everything_has_come(net: Network) -> None:
    declare(net)
    client = net.connect()
    fill(net, 3000)
    receiver = read_chunks(client, records=1100, credit=0)
    receiver.link.set_credit(9)
    receiver.drain()
    assert covered(receiver) == [(0, 1100), (1100, 2200), (2200, 3000)]
    assert (receiver.drained, receiver.link.credit) == (1, 0)


def test_a_record_that_is_too_large_ends_the_link_behind_the_others(net: Network) -> None:
    declare(net)
    client = net.connect()
    sender = client.sender("s")
    sender.send(b"0", b"1", b"x" * 5000, b"3")
    receiver = read_chunks(client, max_message_size=2000)
    assert records(receiver) == pairs(0, 2)
    error = receiver.error
    assert error is not None and error.condition == "amqp:link:message-size-exceeded"
    assert error.info is not None and (error.info["partition"], error.info["offset"]) == (0, 2)
    assert records(read_chunks(client, start=ULong(3), max_message_size=2000)) == [(3, b"3")]


def test_the_record_that_is_too_large_is_named_though_others_are_left_out(net: Network) -> None:
    declare(net)
    client = net.connect()
    sender = client.sender("s")
    for colour, size in (("blue", 1), ("red", 5000), ("blue", 1), ("blue", 1)):
        sender.send_sections(*coloured(colour, b"x" * size))
    receiver = read_chunks(client, max_message_size=2000, selector="colour = 'red'")
    error = receiver.error
    assert error is not None and error.info is not None and error.info["offset"] == 1


@pytest.mark.parametrize("lost", [True, False])
def test_what_was_gathered_is_counted_while_it_waits(net: Network, lost: bool) -> None:
    declare(net)
    sender = net.connect().sender("s")
    sent = 0
    for _ in range(100):
        red = coloured("red", b"x" * 1000)
        sender.send_sections(*red)
        sent += len(encode(*red))
    for _ in range(4):
        sender.send(*[b"blue"] * 500, settled=True)
    agenda = net.broker.agenda
    held = agenda.held
    client = net.connect()
    receiver = read_chunks(client, selector="colour = 'red'", credit=0)
    receiver.link.set_credit(1)
    client.step()
    # It has passed over so much that it waits for a pass of its own.
    assert receiver.deliveries == [] and agenda.held == held + sent
    if lost:
        client.lose()
    else:
        net.run()
        assert [chunk.count for chunk in chunks(receiver)] == [100]
    assert agenda.held == held


# -- gaps ---------------------------------------------------------------------------------------


def test_a_reader_that_was_overtaken_is_told(net: Network) -> None:
    declare(net, max_records=4)
    client = net.connect()
    sender = client.sender("s")
    sender.send(*numbered(4))
    receiver = read_chunks(client, records=2, credit=1)
    sender.send(*numbered(10, 4))
    receiver.credit(5)
    assert covered(receiver) == [(0, 2)]
    error = receiver.error
    assert error is not None and error.condition == "ferrymq:stream-trimmed"
    assert error.info == {"partition": 0, "expected": 2, "first": 10, "next": 14}


def test_a_reader_may_go_on_behind_the_gap(net: Network) -> None:
    declare(net, max_records=4)
    client = net.connect()
    sender = client.sender("s")
    sender.send(*numbered(4))
    receiver = read_chunks(client, records=2, credit=1, forgiving=True)
    until = read_chunks(client, records=2, credit=1, forgiving=True, until=8)
    assert granted(receiver)["ferrymq:on-trim"] == "continue"
    sender.send(*numbered(10, 4))
    receiver.credit(50)
    assert covered(receiver) == [(0, 2), (10, 12), (12, 14)]
    # All that was left is gone: that this is the end is still told.
    until.credit(50)
    assert covered(until) == [(0, 2), (8, 8)] and not until.detached


# -- transactions -------------------------------------------------------------------------------


@pytest.mark.parametrize("selector", [None, "colour IS NULL"])
def test_a_rollback_winds_a_reader_back(net: Network, selector: str | None) -> None:
    declare(net)
    client = net.connect()
    client.sender("s").send(*numbered(90))
    control = Controller(client)
    receiver = read_chunks(client, records=10, credit=1, selector=selector)
    txn = control.declare()
    acquire(receiver, txn, 3)
    assert covered(receiver) == [(0, 10), (10, 20), (20, 30), (30, 40)]
    receiver.take()
    control.roll_back(txn)
    receiver.credit(2)
    assert covered(receiver) == [(10, 20), (20, 30)]


def test_a_commit_leaves_a_reader_where_it_is(net: Network) -> None:
    declare(net)
    client = net.connect()
    client.sender("s").send(*numbered(90))
    control = Controller(client)
    receiver = read_chunks(client, records=10, credit=0)
    txn = control.declare()
    acquire(receiver, txn, 3)
    receiver.take()
    control.commit(txn)
    receiver.credit(1)
    assert covered(receiver) == [(30, 40)]


@pytest.mark.parametrize("forgiving", [True, False])
def test_a_reader_cannot_be_wound_back_to_what_is_gone(net: Network, forgiving: bool) -> None:
    stream = declare(net)
    client = net.connect()
    sender = net.connect().sender("s")
    sender.send(*numbered(5))
    control = Controller(client)
    receiver = read_chunks(client, credit=0, forgiving=forgiving)
    txn = control.declare()
    acquire(receiver, txn, 9)
    receiver.take()
    stream.clear()
    sender.send(b"5")
    control.roll_back(txn)
    if forgiving:
        receiver.credit(9)
        assert covered(receiver)[-1] == (5, 6)
    else:
        assert receiver.error is not None
        assert receiver.error.condition == "ferrymq:stream-trimmed"


@pytest.mark.parametrize("whole", [True, False])
def test_a_rollback_goes_no_further_than_until(net: Network, whole: bool) -> None:
    """All that there was to read again is gone, and more."""
    stream = declare(net)
    client = net.connect()
    sender = net.connect().sender("s")
    sender.send(*numbered(9))
    control = Controller(client)
    receiver = read_chunks(client, credit=0, until=5, forgiving=True)
    if not whole:
        receiver.credit(1)
        receiver.take()
    txn = control.declare()
    acquire(receiver, txn, 9)
    receiver.take()
    stream.clear()
    sender.send(*numbered(3))
    control.roll_back(txn)
    receiver.credit(9)
    # Of what was read before the transaction nothing is said again.
    assert covered(receiver) == ([(5, 5)] if whole else [])
    assert not receiver.detached


@pytest.mark.parametrize("chunks_wanted", [True, False])
def test_a_rollback_ends_no_reader_that_has_all_it_wanted(
    net: Network, chunks_wanted: bool
) -> None:
    stream = declare(net)
    client = net.connect()
    net.connect().sender("s").send(*numbered(9))
    control = Controller(client)
    properties: dict[str, object] = {"ferrymq:until": 5}
    if chunks_wanted:
        properties["ferrymq:chunks"] = {}
    receiver = read(client, "s::0", properties=properties, credit=9)
    assert receiver.deliveries
    txn = control.declare()
    acquire(receiver, txn, 9)
    stream.clear()
    control.roll_back(txn)
    assert not receiver.detached


# -- whatever is asked for ----------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    colours=st.lists(st.booleans(), max_size=60),
    later=st.lists(st.booleans(), max_size=20),
    start=st.integers(0, 60),
    until=st.none() | st.integers(0, 90),
    bytes=st.sampled_from([1, 100, 1000, 1_000_000]),
    most=st.integers(1, 20),
    credit=st.sampled_from([1, 2, 1000]),
    filtered=st.booleans(),
)
def test_chunks_have_what_there_is_without_gaps(
    colours: list[bool],
    later: list[bool],
    start: int,
    until: int | None,
    bytes: int,
    most: int,
    credit: int,
    filtered: bool,
) -> None:
    net = Network()
    declare(net)
    client = net.connect()
    sender = client.sender("s")

    def publish(all: list[bool], first: int) -> None:
        for number, red in enumerate(all, first):
            sender.send_sections(*coloured("red" if red else "blue", b"%d" % number))

    publish(colours, 0)
    start = min(start, len(colours))
    receiver = read_chunks(
        client,
        start=ULong(start),
        bytes=bytes,
        records=most,
        until=until,
        credit=credit,
        selector="colour = 'red'" if filtered else None,
    )
    publish(later, len(colours))
    for _ in range(len(colours) + len(later) + 1):
        receiver.credit(credit)
    everything = colours + later
    end = len(everything) if until is None else min(until, len(everything))
    wanted = [
        (offset, b"%d" % offset)
        for offset in range(start, end)
        if everything[offset] or not filtered
    ]
    assert records(receiver) == wanted
    at = start
    for chunk, delivery in zip(chunks(receiver), receiver.deliveries, strict=True):
        assert chunk.first == at and chunk.count <= most
        assert len(delivery.payload) <= bytes or chunk.count <= 1
        at = int(chunk.next)
    assert at == max(start, end)


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(st.integers(1, 30) | st.integers(-4, -1), max_size=20),
    most=st.integers(1, 9),
    until=st.none() | st.integers(1, 200),
    forgiving=st.booleans(),
    filtered=st.booleans(),
)
def test_what_is_skipped_is_what_is_gone(
    steps: list[int], most: int, until: int | None, forgiving: bool, filtered: bool
) -> None:
    """Records come and go while a reader is given credit now and then."""
    net = Network()
    stream = declare(net, max_records=16)
    client = net.connect()
    sender = client.sender("s")
    receiver = read_chunks(
        client,
        records=most,
        until=until,
        credit=0,
        forgiving=forgiving,
        selector="colour = 'red'" if filtered else None,
    )
    end = 0
    for step in [*steps, -1000]:
        if step > 0:
            for number in range(end, end + step):
                sender.send_sections(*coloured("red" if number % 3 else "blue", b"%d" % number))
            end += step
        elif not receiver.detached:
            receiver.credit(-step)
    at = 0
    for chunk in chunks(receiver):
        assert chunk.first >= at
        assert chunk.first == at or forgiving
        wanted = [o for o in range(chunk.first, chunk.next) if o % 3 or not filtered]
        assert [chunk.offset(i) for i in range(chunk.count)] == wanted
        at = int(chunk.next)
    goal = end if until is None else min(end, until)
    if receiver.detached:
        assert not forgiving and receiver.error is not None
        assert receiver.error.condition == "ferrymq:stream-trimmed"
        assert receiver.error.info is not None and receiver.error.info["expected"] == at
        assert at < stream.range(0)[0] and at < goal
    else:
        assert at == goal
