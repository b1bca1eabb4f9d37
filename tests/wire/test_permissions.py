"""What a peer may do and leave out, and what it sees of the broker's doing so (AMQP 1.0 part 2)."""

from __future__ import annotations

import pytest

from tests.raw.answers import Answer
from tests.raw.client import Client
from tests.raw.frames import (
    AMQP_HEADER,
    attach_frame,
    begin_frame,
    detach_frame,
    disposition_frame,
    end_frame,
    flow_frame,
    frame,
    open_frame,
    source,
    target,
    transfer_frame,
)
from tests.raw.process import Broker
from tests.raw.values import (
    FALSE,
    NULL,
    TRUE,
    array,
    binary,
    composite,
    data_section,
    mapping,
    string,
    symbol,
    uint,
    ulong,
)
from tests.wire.control import ACCEPTED, RELEASED, exchange, named, waiting

BODIES = [data_section(b"%d" % number) for number in range(3)]


CONFIG = """
[limits]
credit = 10
close-timeout = "500ms"

[[queue]]
pattern = "mortal-*"
dead-letter = "dead"

[[topic]]
pattern = "news-*"
"""


# -- connections and sessions --------------------------------------------------------------------


@pytest.mark.spec("2.4.1", "2.8.12")
def test_the_open_is_small_on_channel_0_and_claims_no_language(broker: Broker) -> None:
    # This peer speaks two languages; the texts of the broker are in English, as all can read.
    locales = array(b"\xa3", 2, b"\x05en-US\x05de-DE")
    with Client(broker.port) as client:
        body = composite(
            0x10, [string("polyglot"), *[NULL] * 4, locales, locales],
        )  # fmt: skip
        client.send(AMQP_HEADER, frame(body))
        assert client.take(8) == AMQP_HEADER
        size = int.from_bytes(client.take(4), "big")
        assert size <= 512
        opened = client.take(size - 4)
        assert opened[2:4] == b"\0\0"
        client.send(begin_frame()).expect("begin")
        client.send(flow_frame(uint(7), uint(1), uint(0)))
        error = client.expect("end").error()
        assert error is not None and error[1].isascii() and error[1]
        client.close()
    with Client(broker.port) as client:
        client.send(AMQP_HEADER, open_frame()).take(8)
        opening = client.expect("open")
        assert (opening.field(5), opening.field(6)) == (None, None)
        client.close()


@pytest.mark.spec("2.7.1")
def test_no_channel_above_the_peers_highest_is_used(broker: Broker) -> None:
    with Client(broker.port) as client:
        client.open(open_frame(channel_max=1)).send(begin_frame(5), begin_frame(9))
        begins = [client.expect("begin") for _ in range(2)]
        assert [(one.channel, one.field(0)) for one in begins] == [(0, 5), (1, 9)]
        client.send(begin_frame(7))
        assert client.expect("close").condition == "amqp:resource-limit-exceeded"


@pytest.mark.spec("2.7.2")
def test_no_handle_above_the_peers_highest_is_used(broker: Broker, address: str) -> None:
    with Client(broker.port) as client:
        client.begin(begin_frame(handle_max=0)).sender(address, handle=5)
        client.send(attach_frame("two", 3, source=source(), target=target(string(address))))
        assert client.expect("end", "flow").condition == "amqp:resource-limit-exceeded"


@pytest.mark.spec("2.8.13")
@pytest.mark.parametrize("key", [uint(5), NULL, binary(b"k")], ids=["uint", "null", "binary"])
def test_keys_of_properties_are_symbols(broker: Broker, key: bytes) -> None:
    with Client(broker.port) as client:
        client.send(AMQP_HEADER, open_frame(properties=mapping(key, TRUE)))
        client.take(8)
        client.expect("open")
        assert client.expect("close").condition == "amqp:decode-error"


@pytest.mark.spec("2.4.5")
def test_no_empty_frame_follows_the_close(broker: Broker) -> None:
    with Client(broker.port) as client:
        # An empty frame each 50 ms, or sooner, and a broker that waits 500 ms for our close.
        client.open(open_frame(idle_time_out=uint(100)))
        client.expect("empty")
        client.send(frame(b"", 60_000))
        client.expect("close", "empty")
        assert client.take(1) == b""


@pytest.mark.spec("1.3.4")
def test_mandatory_fields_are_always_there(broker: Broker, address: str) -> None:
    with Client(broker.port) as client:
        client.send(AMQP_HEADER, open_frame(), begin_frame()).take(8)
        seen: dict[str, Answer] = {}
        wanted = {"open": [0], "begin": [1, 2, 3], "attach": [0, 1, 2], "flow": [1, 2, 3]}
        wanted |= {"transfer": [0], "disposition": [0, 1], "detach": [0]}
        where = string(address)
        client.send(
            attach_frame("s", 0, source=source(), target=target(where)),
            attach_frame("r", 1, True, source(where), target()),
            flow_frame(uint(1), uint(1), uint(0)),
            transfer_frame(BODIES[0], 0, uint(0), binary(b"t")),
            attach_frame("other", 2, source=source(), target=target(where)),
            detach_frame(2),
        )
        while not wanted.keys() <= seen.keys():
            answer = client.read()
            assert answer is not None
            seen[answer.name] = answer
            for at in wanted.get(answer.name, ()):
                assert answer.field(at) is not None, answer
        client.close()


# -- links ---------------------------------------------------------------------------------------


@pytest.mark.spec("2.7.3")
def test_an_initial_delivery_count_of_a_receiver_is_ignored(peer: Client, address: str) -> None:
    peer.sender(address).publish(BODIES)
    where = source(string(address))
    peer.send(attach_frame("r", 1, True, where, target(), initial_delivery_count=uint(7)))
    assert peer.expect("attach", "flow").field(9) == 0
    answers = exchange(peer, flow_frame(uint(1), uint(2), uint(0)))
    assert len(named(answers, "transfer")) == 2


@pytest.mark.spec("2.6.7")
def test_a_sender_that_announced_nothing_may_send(peer: Client, address: str) -> None:
    # The broker has nothing to send, and says so; then it has.
    peer.receiver(address, 0)
    peer.send(flow_frame(uint(1), uint(1), uint(0), echo=TRUE))
    assert peer.expect("flow", "empty").field(7) == 0
    # This peer says so of itself, and sends all the same.
    peer.sender(address)
    answers = exchange(
        peer,
        flow_frame(uint(0), delivery_count=uint(0), available=uint(0)),
        transfer_frame(BODIES[0], 0, uint(0), binary(b"t")),
    )
    assert len(named(answers, "disposition")) == 1
    (arrived,) = named(answers, "transfer")
    assert arrived.payload == BODIES[0]


@pytest.mark.spec("2.6.7")
def test_what_is_available_never_falls_below_zero(peer: Client, address: str) -> None:
    peer.sender(address)
    exchange(peer, flow_frame(uint(0), delivery_count=uint(0), available=uint(1)))
    frames = (transfer_frame(BODIES[n], 0, uint(n), binary(b"%d" % n)) for n in range(3))
    exchange(peer, *frames)
    # Without a word about it: the flow repeats what the receiver makes of it.
    peer.send(flow_frame(uint(0), delivery_count=uint(3), echo=TRUE))
    flow = peer.expect("flow", "empty")
    assert (flow.field(5), flow.field(7)) == (3, 0)


@pytest.mark.spec("2.6.9")
def test_credit_is_topped_up_when_half_of_it_is_used(peer: Client, address: str) -> None:
    peer.sender(address)

    def settled(first: int, last: int) -> list[Answer]:
        return named(
            exchange(
                peer,
                *(
                    transfer_frame(data_section(), 0, uint(n), binary(b"%d" % n), settled=TRUE)
                    for n in range(first, last)
                ),
            ),
            "flow",
        )

    assert not settled(0, 4)
    (flow,) = settled(4, 6)
    assert (flow.field(5), flow.field(6)) == (6, 10)


@pytest.mark.spec("2.6.14")
def test_frames_of_two_deliveries_of_a_link_do_not_alternate(broker: Broker, address: str) -> None:
    bodies = [data_section(bytes((65 + at,)) * 2_000) for at in range(3)]
    with Client(broker.port) as client:
        client.open(open_frame(max_frame_size=512)).send(begin_frame(incoming_window=2))
        client.expect("begin")
        client.sender(address).publish(bodies)
        client.send(attach_frame("r", 1, True, source(string(address)), target()))
        client.expect("attach", "flow")
        client.send(flow_frame(uint(1), uint(3), uint(0), incoming_window=2))
        whole: list[bytes] = []
        part, count = b"", 0
        while len(whole) < 3:
            (transfer,) = client.arrivals(1)
            # The first frame of each has its id, and the others are its own.
            assert (transfer.field(1) == len(whole)) is (not part)
            part, count = part + transfer.payload, count + 1
            if transfer.field(5) is not True:
                whole.append(part)
                part = b""
            window = flow_frame(next_incoming_id=uint(count), incoming_window=2)
            client.send(window)
        assert whole == bodies
        client.socket.close()


@pytest.mark.spec("2.6.12")
def test_a_state_that_is_not_final_leaves_the_delivery_where_it_is(
    peer: Client, broker: Broker, address: str
) -> None:
    peer.sender(address).publish(BODIES[:1])
    peer.receiver(address, 2, name="mine")
    peer.arrivals(1)
    received = composite(0x23, [uint(0), ulong(1)])
    assert not named(exchange(peer, disposition_frame(0, state=received)), "disposition")
    assert waiting(broker.port, address) == []
    answers = exchange(peer, disposition_frame(0, state=RELEASED))
    (disposition,) = named(answers, "disposition")
    assert disposition.field(3) is True
    # It was still this link's to release, and comes again.
    assert len(named(answers, "transfer")) == 1


@pytest.mark.spec("2.6.12")
@pytest.mark.parametrize("state", [NULL, ACCEPTED], ids=["without", "accepted"])
def test_a_sender_may_settle_before_it_has_an_outcome(
    peer: Client, broker: Broker, address: str, state: bytes
) -> None:
    peer.sender(address)
    answers = exchange(
        peer,
        transfer_frame(BODIES[0][:3], 0, uint(0), binary(b"t"), more=TRUE, settled=FALSE),
        # In the middle of the delivery.
        disposition_frame(0, receiver=False, settled=TRUE, state=state),
        transfer_frame(BODIES[0][3:], 0),
        transfer_frame(BODIES[1], 0, uint(1), binary(b"u")),
    )
    assert not named(answers, "detach")
    assert waiting(broker.port, address) == BODIES[:2]


# -- messages ------------------------------------------------------------------------------------


@pytest.mark.spec("3.2.1")
def test_the_first_acquirer_is_the_first_alone(peer: Client, address: str) -> None:
    header = composite(0x70, [NULL, NULL, NULL, TRUE])
    peer.sender(address).publish([header + BODIES[0]])
    peer.receiver(address, 1)
    (first,) = peer.arrivals(1)
    assert first.payload == header + BODIES[0]
    peer.send(
        disposition_frame(0, settled=TRUE, state=RELEASED), flow_frame(uint(1), uint(1), uint(1))
    )
    (again,) = peer.arrivals(1)
    # A header of which every field has its default.
    assert again.payload == b"\x00\x53\x70\x45" + BODIES[0]


@pytest.mark.spec("3.2.1", "3.2.3")
def test_what_a_message_does_not_say_of_itself_has_its_default(peer: Client, address: str) -> None:
    peer.sender(address).publish(BODIES[:1])
    peer.receiver(address, 1)
    for count in range(3):
        (transfer,) = peer.arrivals(1)
        if count:
            # Its count begins at 0, and it had no annotations.
            counted = b"\x00\x53\x70\xc0\x07\x05\x40\x40\x40\x40\x52" + bytes((count,))
            noted = b"\x00\x53\x72\xc1\x08\x02\xa3\x03x-a\x52" + bytes((count,))
            assert transfer.payload == counted + noted + BODIES[0]
        annotations = mapping(symbol("x-a"), b"\x52" + bytes((count + 1,)))
        peer.send(
            disposition_frame(
                count, settled=TRUE, state=composite(0x27, [TRUE, NULL, annotations])
            ),
            flow_frame(uint(1), uint(1), uint(count + 1)),
        )


@pytest.mark.spec("3.4.3")
def test_rejected_counts_as_a_delivery_that_failed(peer: Client, broker: Broker) -> None:
    peer.sender("mortal-1").publish(BODIES[:1])
    peer.receiver("mortal-1", 1)
    peer.arrivals(1)
    exchange(peer, disposition_frame(0, settled=TRUE, state=composite(0x25, [])))
    (dead,) = waiting(broker.port, "dead")
    assert dead.startswith(b"\x00\x53\x70\xc0\x07\x05\x40\x40\x40\x40\x52\x01")


# -- what outlives a link ------------------------------------------------------------------------


@pytest.mark.spec("3.5.6")
@pytest.mark.parametrize(
    ("policy", "kept"),
    [("link-detach", 0), ("session-end", 1), ("connection-close", 2), ("never", 3)],
)
def test_a_subscription_ends_with_what_its_policy_names(
    broker: Broker, policy: str, kept: int
) -> None:
    """`kept` counts what may end without it: the link, the session, the connection."""
    topic = f"news-{policy}"

    def connect() -> Client:
        client = Client(broker.port).open(open_frame(string(f"of-{policy}")))
        client.send(begin_frame()).expect("begin")
        return client

    def subscribe(client: Client) -> int:
        where = source(string(topic), durable=uint(1), expiry=symbol(policy))
        client.send(attach_frame("sub", 1, True, where, target()))
        client.expect("attach", "flow")
        transfers = named(exchange(client, flow_frame(uint(1), uint(9), uint(0))), "transfer")
        if transfers:
            number = transfers[0].field(1)
            assert isinstance(number, int)
            exchange(client, disposition_frame(number, settled=TRUE, state=ACCEPTED))
        return len(transfers)

    def publish() -> None:
        with Client(broker.port) as other:
            other.begin().sender(topic, name="to").publish(BODIES[:1])

    client = connect()
    assert subscribe(client) == 0
    exchange(client, detach_frame(1, closed=False))
    publish()
    found = [subscribe(client)]
    client.send(end_frame(), begin_frame())
    client.expect("end", "flow")
    client.expect("begin")
    publish()
    found.append(subscribe(client))
    client.close()
    client.socket.close()
    client = connect()
    publish()
    found.append(subscribe(client))
    assert found == [1] * kept + [0] * (3 - kept)
    exchange(client, detach_frame(1))
    client.socket.close()
