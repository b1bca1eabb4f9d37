"""What deliveries say about where they are in their stream."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ferrymq_codec.scalars import Described, Int, Symbol, Timestamp, ULong
from ferrymq_types.messaging import (
    ApplicationProperties,
    Data,
    DeliveryAnnotations,
    Footer,
    Header,
    MessageAnnotations,
    Properties,
)
from ferrymq_types.unions import Section
from tests.broker.harness import Network, decode, encode, message_annotations
from tests.broker.streams.kit import declare, granted, keyed, read


def delivered(net: Network, payload: bytes, partition: int = 0, format: int = 0) -> bytes:
    """The message as it comes out of the partition of a stream."""
    client = net.connect()
    client.sender(f"s::{partition}").send_encoded(payload, message_format=format)
    receiver = read(client, f"s::{partition}", "last")
    return receiver.deliveries[-1].payload


def test_a_delivery_tells_its_place(net: Network) -> None:
    declare(net, partitions=3)
    client = net.connect()
    sender = client.sender("s::2")
    sender.send(b"a", b"b")
    net.advance(1.5)
    wall = net.wall
    sender.send(b"c")
    receiver = read(client, "s::2", "last")
    found = message_annotations(receiver.deliveries[0].payload)
    assert found == {
        "x-opt-offset": 2,
        "x-opt-sequence-number": 2,
        "x-opt-enqueued-time": Timestamp(wall),
        "x-opt-partition": Int(2),
    }
    assert [type(value) for value in found.values()] == [int, int, Timestamp, Int]


def test_the_key_and_other_annotations_are_kept(net: Network) -> None:
    declare(net)
    payload = encode(
        MessageAnnotations(
            value={"x-opt-partition-key": "k", "x-opt-other": [1, "two"], "mine": ULong(9)}
        ),
        Data(value=b"x"),
    )
    found = message_annotations(delivered(net, payload))
    assert found["x-opt-partition-key"] == "k"
    assert found["x-opt-other"] == [1, "two"]
    assert found["mine"] == ULong(9) and type(found["mine"]) is ULong
    assert len(found) == 7


def test_forged_places_are_overwritten(net: Network) -> None:
    declare(net)
    forged: dict[str | int, object] = {
        "x-opt-offset": 99,
        "x-opt-sequence-number": "none",
        "before": 1,
        "x-opt-enqueued-time": Described(Symbol("a"), [1, {"b": 2}]),
        "x-opt-partition": Int(0),
        "behind": {"x-opt-offset": 5},
    }
    payload = encode(MessageAnnotations(value=forged), Data(value=b"x"))
    found = message_annotations(delivered(net, payload))
    assert found == {
        "x-opt-offset": 0,
        "x-opt-sequence-number": 0,
        "x-opt-enqueued-time": Timestamp(net.wall),
        "x-opt-partition": Int(0),
        "before": 1,
        "behind": {"x-opt-offset": 5},
    }


def test_a_filter_sees_the_place_that_is_delivered(net: Network) -> None:
    declare(net)
    client = net.connect()
    sender = client.sender("s")
    sender.send_sections(*keyed("a", b"0"))
    receiver = read(client, "s")
    sender.send_sections(*keyed("b", b"1"))
    assert [message_annotations(d.payload)["x-opt-partition-key"] for d in receiver.deliveries] == [
        "a",
        "b",
    ]


def test_a_foreign_format_is_left_alone(net: Network) -> None:
    declare(net)
    assert delivered(net, b"\x01\x02\x03", format=0x100) == b"\x01\x02\x03"
    # The lowest byte is the version of a format, here of AMQP's own.
    payload = encode(Data(value=b"x"))
    assert delivered(net, payload, format=1).endswith(payload)


def test_annotations_of_another_encoding(net: Network) -> None:
    declare(net)
    body = encode(Data(value=b"x"))
    large = encode(MessageAnnotations(value={"text": "y" * 1000}))
    assert message_annotations(delivered(net, large + body))["text"] == "y" * 1000
    long = b"\x00\x80" + (0x72).to_bytes(8, "big") + b"\xc1\x05\x02\xa3\x01k\x40" + body
    assert message_annotations(delivered(net, long))["k"] is None
    assert delivered(net, long).endswith(body)


KEYS = st.sampled_from(["x-opt-offset", "x-opt-partition-key", "x-opt-x", "a", "b" * 200])
VALUES = st.one_of(st.integers(-(2**63), 2**63 - 1), st.text(max_size=300), st.booleans())


@given(
    header=st.booleans(),
    annotations=st.none() | st.dictionaries(KEYS, VALUES, max_size=5),
    rest=st.sets(st.sampled_from(["properties", "application", "footer"])),
)
def test_everything_but_the_place_is_as_it_was_sent(
    header: bool, annotations: dict[str | int, object] | None, rest: set[str]
) -> None:
    net = Network()
    declare(net)
    first: list[Section] = [Header(priority=3)] if header else []
    bare: list[Section] = [Data(value=b"x")]
    if "properties" in rest:
        bare.insert(0, Properties(subject="s"))
    if "application" in rest:
        bare.insert(len(bare) - 1, ApplicationProperties(value={"a": 1}))
    if "footer" in rest:
        bare.append(Footer(value={"f": 1}))
    middle: list[Section] = (
        [] if annotations is None else [MessageAnnotations(value=dict(annotations))]
    )
    ignored: list[Section] = [DeliveryAnnotations(value={"hop": 1})]
    payload = delivered(net, encode(*first, *ignored, *middle, *bare))
    kept = {k: v for k, v in (annotations or {}).items() if k != "x-opt-offset"}
    found = message_annotations(payload)
    assert payload.startswith(encode(*first)) and payload.endswith(encode(*bare))
    assert [type(s) for s in decode(payload)] == [
        *(type(s) for s in first),
        MessageAnnotations,
        *(type(s) for s in bare),
    ]
    assert found == {
        "x-opt-offset": 0,
        "x-opt-sequence-number": 0,
        "x-opt-enqueued-time": Timestamp(net.wall),
        "x-opt-partition": Int(0),
        **kept,
    }


def test_the_last_record_of_the_partition(net: Network) -> None:
    declare(net, partitions=2)
    client = net.connect()
    client.sender("s::1").send(b"a", b"b")
    appended = net.wall
    net.advance(2)
    large = b"x" * 100_000
    client.sender("s::0").send(b"c", large)
    receiver = read(client, "s", "first", properties={"ferrymq:last-record": True})
    assert granted(receiver)["ferrymq:last-record"] is True
    told = {
        (found["x-opt-partition"], found["x-opt-offset"]): next(
            s.value for s in decode(one.payload) if isinstance(s, DeliveryAnnotations)
        )
        for one in receiver.deliveries
        for found in [message_annotations(one.payload)]
    }
    for (partition, _), more in told.items():
        assert more == {
            "x-opt-last-offset": 1,
            "x-opt-last-enqueued-time": Timestamp(appended if partition == 1 else net.wall),
            "x-opt-read-time": Timestamp(net.wall),
        }
    assert sorted(told) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    refused = client.receiver("s", credit=1, properties={"ferrymq:last-record": "yes"})
    assert refused.error is not None and "must be a boolean" in (refused.error.description or "")
    plain = read(client, "s::0", "first")
    assert not any(isinstance(s, DeliveryAnnotations) for s in decode(plain.deliveries[0].payload))
