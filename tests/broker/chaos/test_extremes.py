"""Values of every type and extent, wherever the broker reads one.

Whatever a client writes there, it gets a clean answer and keeps its connection: compiled code, to
which numbers beyond 64 bits and subclasses of int are something else, no less than interpreted.
"""

from __future__ import annotations

import uuid
from decimal import Decimal

import pytest

from ferrymq_broker.nodes.exchanges.exchange import Exchange
from ferrymq_broker.values.policy import (
    EXCHANGE_TYPES,
    ExchangePolicy,
    QueuePolicy,
    StreamPolicy,
    TopicPolicy,
)
from ferrymq_codec.containers import Array
from ferrymq_codec.scalars import (
    Byte,
    Char,
    Described,
    Float32,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
)
from ferrymq_types.messaging import (
    Accepted,
    ApplicationProperties,
    Data,
    MessageAnnotations,
    Modified,
    Properties,
    Rejected,
    Released,
    Source,
    Target,
)
from tests.broker.harness import Network
from tests.broker.lifecycle.letters import refused

SIMPLE: list[object] = [
    None,
    True,
    False,
    0,
    -1,
    UByte(200),
    Byte(-128),
    UInt(2**32 - 1),
    ULong(2**63),
    ULong(2**64 - 1),
    2**63 - 1,
    -(2**63),
    Float32(1.5),
    1e308,
    float("nan"),
    float("-inf"),
    Decimal("1E+6000"),
    Decimal("NaN"),
    Decimal("sNaN"),
    Decimal("Infinity"),
    Char("x"),
    Timestamp(2**63 - 1),
    Timestamp(-(2**63)),
    uuid.UUID(int=7),
    b"",
    b"\xff\x00",
    "",
    "12",
    "9" * 5000,
    "\0",
    Symbol(""),
    Symbol("sym"),
]
VALUES = [
    *SIMPLE,
    [],
    [1, [2]],
    {},
    {"a": {"b": 1}},
    Array("symbol", ["a"]),
    Array("int", []),
    Described(Symbol("foo"), 1),
    Described(ULong(2**64 - 1), "x"),
]


def name(value: object) -> str:
    return f"{type(value).__name__}-{str(value)[:20]}".encode("ascii", "replace").decode()


every_value = pytest.mark.parametrize("value", VALUES, ids=name)

ANNOTATIONS = [
    "x-opt-delivery-time",
    "x-opt-delivery-delay",
    "x-opt-scheduled-enqueue-time",
    "x-opt-partition",
    "x-opt-partition-key",
    "x-opt-routing-key",
    "x-opt-key",
    "x-opt-offset",
    "x-opt-deadletter-count",
    "x-opt-deadletter-path",
]


@pytest.fixture
def net() -> Network:
    net = Network(auto_create=False)
    net.declare("q")
    net.declare("dead")
    net.declare("letters", QueuePolicy(dead_letter="dead"))
    net.declare("annotated", QueuePolicy(last_value_key="x-opt-key"))
    net.declare("last", QueuePolicy(last_value_key="key"))
    net.space.create("stream", StreamPolicy(partitions=3))
    net.space.create("topic", TopicPolicy())
    for type in EXCHANGE_TYPES:
        exchange = net.space.create(f"exchange-{type}", ExchangePolicy(type=type))
        assert isinstance(exchange, Exchange)
        headers = type == "headers"
        exchange.bind(
            "q", "", {"x-match": "any-with-x", "key": 1, "x-opt-key": 1} if headers else {}
        )
    return net


@every_value
def test_annotations(net: Network, value: object) -> None:
    client = net.connect()
    senders = [client.sender(address) for address in list(net.space.nodes)]
    readers = [client.receiver(address, credit=100) for address in ("topic", "stream")]
    for key in ANNOTATIONS:
        for sender in senders:
            for _ in range(2):
                sent = sender.send_sections(
                    MessageAnnotations(value={key: value}), Data(value=b"x")
                )
                assert isinstance(sent.remote_state, Accepted | Rejected | Released)
                if isinstance(sent.remote_state, Rejected):
                    assert refused(sent)[0] == "amqp:invalid-field" and key in refused(sent)[1]
    net.advance(3)
    assert all(reader.deliveries and not reader.detached for reader in readers)
    assert client.closed_with is None and client.terminated is None


@pytest.mark.parametrize("value", SIMPLE, ids=name)
def test_application_properties(net: Network, value: object) -> None:
    client = net.connect()
    selector = Described(
        Symbol("apache.org:selector-filter:string"),
        "key > 3 OR key = 'a' OR key LIKE 'a%' OR key IN ('a') OR key + 1 > 2 OR -key < 1",
    )
    client.receiver("q", credit=100, source=Source(address="q", filter={"s": selector}))
    for address in list(net.space.nodes):
        for _ in range(2):
            sent = client.sender(address).send_sections(
                ApplicationProperties(value={"key": value}), Data(value=b"x")
            )
            assert isinstance(sent.remote_state, Accepted | Released)
    assert client.closed_with is None and client.terminated is None


@every_value
def test_properties_of_links(net: Network, value: object) -> None:
    client = net.connect()
    names = ("priority", "x-priority", "exclusive", "ferrymq:require-filters", "delivery-mode")
    for key in (*names, "opt-delivery-mode", "paired", "ferrymq:on-trim"):
        for address in ("q", "stream", "topic"):
            for link in (
                client.receiver(address, credit=1, properties={key: value}),
                client.sender(address, properties={key: value}),
            ):
                assert link.attached
                if link.detached:
                    assert link.error is not None and link.error.description
                    assert link.error.condition != "amqp:internal-error"
                else:
                    link.close()
    assert client.closed_with is None and client.terminated is None


@every_value
def test_filters(net: Network, value: object) -> None:
    client = net.connect()
    for kind in (
        "apache.org:legacy-amqp-direct-binding:string",
        "apache.org:legacy-amqp-topic-binding:string",
        "apache.org:legacy-amqp-headers-binding:map",
        "apache.org:no-local-filter:list",
        "apache.org:selector-filter:string",
        "amqp:properties-filter",
        "amqp:application-properties-filter",
        "rabbitmq:stream-offset-spec",
        "nobody:knows",
    ):
        for content in (value, {"subject": value, "key": value}):
            for address in ("q", "stream::1", "topic"):
                filters: dict[str, object] = {"f": Described(Symbol(kind), content)}
                receiver = client.receiver(address, source=Source(address=address, filter=filters))
                assert receiver.attached
                if receiver.detached:
                    assert receiver.error is not None
                    assert receiver.error.condition in (
                        "amqp:invalid-field",
                        "amqp:precondition-failed",
                    )
                    continue
                receiver.credit(5)
                sender = client.sender(address.partition("::")[0])
                sender.send_sections(
                    Properties(subject="s"), ApplicationProperties({"key": 1}), Data(value=b"x")
                )
                receiver.close()
    assert client.closed_with is None and client.terminated is None


@every_value
def test_properties_of_dynamic_nodes(net: Network, value: object) -> None:
    client = net.connect()
    for key in ("lifetime-policy", "supported-dist-modes", "another"):
        asked: dict[str, object] = {key: value}
        for link in (
            client.receiver(None, source=Source(dynamic=True, dynamic_node_properties=asked)),
            client.sender(None, target=Target(dynamic=True, dynamic_node_properties=asked)),
        ):
            assert link.attached
            if link.detached:
                assert link.error is not None and key in (link.error.description or "")
            else:
                link.close()
    assert not [address for address in net.space.nodes if address.startswith("dynamic")]
    assert client.closed_with is None and client.terminated is None


@every_value
def test_annotations_of_outcomes(net: Network, value: object) -> None:
    client = net.connect()
    annotations = dict.fromkeys(ANNOTATIONS, value)
    for address in ("q", "letters", "annotated", "last"):
        client.sender(address).send(b"x")
        receiver = client.receiver(address, credit=1)
        receiver.settle(Modified(message_annotations=annotations))
        receiver.credit(1)
        receiver.settle(Rejected())
        assert net.queue(address).message_count() == 0
    assert net.queue("dead").message_count() == 1
    assert client.closed_with is None and client.terminated is None
