"""Credit, drain, windows, and clients that do not read."""

from __future__ import annotations

import pytest

from ferrymq_broker.connections.output_turns import OUTPUT_LIMIT
from ferrymq_types.messaging import Accepted, Data
from tests.broker.harness import Network, encode


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


@pytest.mark.spec("2.6.7")
def test_drain_of_an_empty_queue_is_answered_at_once(net: Network) -> None:
    receiver = net.connect().receiver("q")
    receiver.link.set_credit(10)
    receiver.drain()
    assert receiver.drained == 1
    assert receiver.link.credit == 0


@pytest.mark.spec("2.6.7")
def test_drain_brings_what_there_is_and_gives_back_the_rest(net: Network) -> None:
    client = net.connect()
    client.sender("q").send(*numbered(3))
    receiver = client.receiver("q")
    receiver.link.set_credit(10)
    receiver.drain()
    assert receiver.bodies() == numbered(3)
    assert receiver.drained == 1
    # The credit is spent: what comes later waits.
    client.sender("q").send(b"later")
    assert len(receiver.deliveries) == 3
    receiver.credit(1)
    assert receiver.bodies()[-1] == b"later"


def test_drain_uses_up_the_credit_if_there_are_enough_messages(net: Network) -> None:
    client = net.connect()
    client.sender("q").send(*numbered(10))
    receiver = client.receiver("q")
    receiver.link.set_credit(4)
    receiver.drain()
    assert receiver.bodies() == numbered(4)
    assert receiver.drained == 1


def test_a_drain_waits_until_the_client_reads(net: Network) -> None:
    client = net.connect()
    client.sender("q").send(*numbered(3))
    receiver = client.receiver("q")
    client.pause()
    receiver.link.set_credit(10)
    receiver.drain()
    assert receiver.drained == 0
    client.resume()
    assert receiver.bodies() == numbered(3)
    assert receiver.drained == 1


def test_a_drain_counts_messages_the_session_window_holds_back(net: Network) -> None:
    client = net.connect(incoming_window=2)
    client.sender("q").send(*numbered(20))
    receiver = client.receiver("q")
    receiver.link.set_credit(100)
    receiver.drain()
    assert receiver.bodies() == numbered(20)
    assert receiver.drained == 1


def test_producers_get_credit_again_at_half() -> None:
    net = Network(credit=10)
    sender = net.connect().sender("q")
    assert sender.link.credit == 10
    sender.send(*numbered(4))
    assert sender.link.credit == 6
    sender.send(b"5")
    assert sender.link.credit == 10


def test_a_producer_that_does_not_read_gets_no_more_credit() -> None:
    net = Network(credit=10)
    client = net.connect()
    sender = client.sender("q")
    client.pause()
    sender.send(*numbered(9))
    client.resume()
    assert net.queue("q").available == 9
    assert sender.link.credit == 10


def test_a_tiny_session_window_delivers_everything_in_order(net: Network) -> None:
    net.connect().sender("q").send(*numbered(500))
    receiver = net.connect(incoming_window=1).receiver("q", credit=1000)
    assert receiver.bodies() == numbered(500)
    receiver.settle(Accepted())
    assert net.queue("q").acquired == 0


def test_a_full_session_window_leaves_messages_to_others(net: Network) -> None:
    """Endless credit with no window must not hoard the queue."""
    slow = net.connect(incoming_window=4)
    slow.receiver("q", credit=1000)
    # Nothing reaches the client any more, which thus never opens the window again.
    net.clients.remove(slow)
    net.connect().sender("q").send(*numbered(50))
    other = net.connect().receiver("q", credit=1000)
    # Four are in the window, and none waits for it.
    assert len(other.deliveries) == 46


def test_one_pass_writes_a_bounded_amount_to_one_client(net: Network) -> None:
    body = bytes(10_000)
    client = net.connect()
    client.sender("q").send(*[body] * 500)
    written: list[int] = []

    def count(data: bytes) -> None:
        written.append(len(data))
        original(data)

    original = client.handler.output._write
    client.handler.output._write = count
    receiver = client.receiver("q", credit=1000)
    assert len(receiver.deliveries) == 500
    assert max(written) < OUTPUT_LIMIT + 2 * len(body)
    assert len(written) > 500 * 10_000 // (OUTPUT_LIMIT + 2 * len(body))


@pytest.mark.spec("2.6.14")
@pytest.mark.parametrize("size", [0, 1, 65_000, 65_536, 1_000_000, 10_000_000])
def test_messages_of_any_size(net: Network, size: int) -> None:
    client = net.connect()
    body = bytes(range(256)) * (size // 256) + bytes(size % 256)
    sender = client.sender("q")
    sender.send(body, b"after")
    receiver = client.receiver("q", credit=10)
    assert receiver.bodies() == [body, b"after"]
    receiver.settle(Accepted())
    assert net.queue("q").acquired == 0


def test_a_client_with_small_frames_gets_small_frames(net: Network) -> None:
    net.connect().sender("q").send(bytes(5000))
    client = net.connect(max_frame_size=512)
    frames: list[bytes] = []
    original = client.handler.output._write

    def record(data: bytes) -> None:
        frames.append(data)
        original(data)

    client.handler.output._write = record
    receiver = client.receiver("q", credit=1)
    assert receiver.bodies() == [bytes(5000)]
    data = b"".join(frames)
    while data:
        size = int.from_bytes(data[:4], "big")
        assert size <= 512
        data = data[size:]


def test_a_message_larger_than_the_broker_takes_costs_the_link() -> None:
    net = Network(max_message_size=1000)
    client = net.connect()
    sender = client.sender("q")
    assert sender.link.remote_max_message_size == 1000
    # The client's engine would refuse; another client's might not.
    sender.link.remote_max_message_size = 0
    sender.send(bytes(2000))
    assert sender.detached
    assert sender.error is not None
    assert sender.error.condition == "amqp:link:message-size-exceeded"
    assert net.queue("q").available == 0


def test_a_message_larger_than_a_consumer_takes_goes_to_another(net: Network) -> None:
    client = net.connect()
    small = client.receiver("q", credit=10, max_message_size=100)
    client.sender("q").send(bytes(1000), b"small")
    assert small.bodies() == [b"small"]
    large = client.receiver("q", credit=10)
    assert large.bodies() == [bytes(1000)]


def test_a_browser_passes_over_messages_too_large_for_it(net: Network) -> None:
    client = net.connect()
    client.sender("q").send(bytes(1000), b"small")
    assert client.receiver("q", credit=10, mode="copy", max_message_size=100).bodies() == [b"small"]


def test_a_message_cut_off_by_the_end_of_the_connection_is_not_published(net: Network) -> None:
    client = net.connect(max_frame_size=512)
    sender = client.sender("q")
    payload = encode(Data(value=bytes(1_000_000)))
    client.silent = True
    sender.link.send(payload)
    data = client.engine.data_to_send()
    client.handler.receive_data(data[: len(data) // 2], net.now)
    client.lose()
    assert net.queue("q").available == 0
