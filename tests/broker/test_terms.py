"""What a client cannot have on a link is refused; what was agreed binds (AMQP 1.0 §3.5)."""

from __future__ import annotations

from typing import Any

import pytest

from ferrymq_codec.containers import Array
from ferrymq_codec.errors import DecodeError
from ferrymq_codec.reader import Reader
from ferrymq_codec.scalars import Described, Symbol
from ferrymq_types.filters import NoLocalFilter
from ferrymq_types.messaging import (
    Accepted,
    ApplicationProperties,
    Data,
    DeleteOnClose,
    DeleteOnNoLinks,
    DeleteOnNoLinksOrMessages,
    DeleteOnNoMessages,
    DeliveryAnnotations,
    Footer,
    Header,
    MessageAnnotations,
    Modified,
    Received,
    Rejected,
    Released,
    Source,
    Target,
    TerminusDurability,
)
from ferrymq_types.registry import decode_any
from ferrymq_types.transactions import TransactionalState
from tests.broker.harness import Network, decode, header
from tests.broker.test_termini import OUTCOMES, refused

LIFETIMES = [
    DeleteOnClose(),
    DeleteOnNoLinks(),
    DeleteOnNoMessages(),
    DeleteOnNoLinksOrMessages(),
]


# -- outcomes --------------------------------------------------------------------------


@pytest.mark.spec("3.5.3")
@pytest.mark.parametrize("asked", [OUTCOMES, OUTCOMES[::-1], OUTCOMES[:1]])
def test_the_outcomes_asked_for_come_back(net: Network, asked: list[str]) -> None:
    receiver = net.connect().receiver("q", source=Source(address="q", outcomes=asked))
    assert receiver.remote_source.outcomes == asked


@pytest.mark.spec("3.5.3")
def test_outcomes_that_do_not_exist_are_refused(net: Network) -> None:
    outcomes = ["amqp:accepted:list", "example:shredded:list"]
    receiver = net.connect().receiver("q", source=Source(address="q", outcomes=outcomes))
    assert refused(receiver, "amqp:not-implemented")
    assert receiver.error is not None and "shredded" in str(receiver.error.description)


@pytest.mark.spec("3.5.3")
@pytest.mark.parametrize("state", [Rejected(), Released(), Modified(delivery_failed=True)])
def test_an_outcome_that_was_not_agreed_costs_the_link(net: Network, state: Any) -> None:
    client = net.connect()
    client.sender("q").send(b"a", b"b", b"c")
    source = Source(address="q", outcomes=["amqp:accepted:list"])
    receiver = client.receiver("q", source=source, credit=2)
    # The next outcomes of the same read find the link gone.
    receiver.settle(state)
    assert receiver.detached
    assert receiver.error is not None and receiver.error.condition == "amqp:not-allowed"
    queue = net.queue("q")
    assert (queue.available, queue.acquired, queue.rejected) == (3, 0, 0)
    other = client.receiver("q", credit=10)
    assert other.bodies() == [b"a", b"b", b"c"]
    assert header(other.deliveries[0].payload).delivery_count == 0


def test_the_agreed_outcome_is_applied(net: Network) -> None:
    client = net.connect()
    client.sender("q").send(b"a")
    source = Source(address="q", outcomes=["amqp:released:list"])
    receiver = client.receiver("q", source=source, credit=1)
    receiver.settle(Released())
    assert not receiver.detached
    assert net.queue("q").available == 1


@pytest.mark.spec("3.5.3")
def test_without_outcomes_the_default_outcome_decides(net: Network) -> None:
    client = net.connect()
    client.sender("q").send(b"a")
    receiver = client.receiver("q", credit=1, default_outcome=Accepted())
    assert receiver.remote_source.default_outcome == Accepted()
    receiver.settle(None)
    assert (net.queue("q").available, net.queue("q").acquired) == (0, 0)


@pytest.mark.spec("3.5.3")
def test_a_default_outcome_that_is_no_state_is_malformed() -> None:
    def source(default_outcome: bytes) -> Reader:
        fields = b"\x40" * 8 + default_outcome
        data = b"\x00\x53\x28\xc0" + bytes([len(fields) + 1, 9]) + fields
        return Reader(data, 0, len(data))

    assert decode_any(source(b"\x00\x53\x24\x45"), "value") == Source(default_outcome=Accepted())
    # received is a state of a delivery, and not its end: that costs the link alone.
    received = decode_any(source(b"\x00\x53\x23\xc0\x03\x02\x43\x44"), "value")
    assert received == Source(default_outcome=Received(section_number=0, section_offset=0))
    with pytest.raises(DecodeError) as caught:
        decode_any(source(b"\x00\x53\x28\x45"), "value")
    assert caught.value.field == "source.default-outcome"


def test_a_transactional_outcome_costs_the_link(net: Network) -> None:
    client = net.connect()
    client.sender("q").send(b"a")
    receiver = client.receiver("q", credit=1)
    receiver.settle(TransactionalState(txn_id=b"t", outcome=Accepted()))
    assert receiver.error is not None
    assert receiver.error.condition == "amqp:transaction:unknown-id"
    assert (net.queue("q").available, net.queue("q").acquired) == (1, 0)


# -- transactions ----------------------------------------------------------------------


@pytest.mark.spec("4.4.1")
def test_a_message_of_a_transaction_that_does_not_exist_is_rejected(net: Network) -> None:
    client = net.connect()
    sender = client.sender("q")
    delivery = sender.send_encoded(b"\x00\x53\x77\x40", state=TransactionalState(txn_id=b"t"))
    assert isinstance(delivery.remote_state, Rejected)
    assert delivery.remote_state.error is not None
    assert delivery.remote_state.error.condition == "amqp:transaction:unknown-id"
    assert net.queue("q").available == 0


# -- properties of dynamic nodes -------------------------------------------------------


@pytest.mark.spec("3.5.9")
@pytest.mark.parametrize("policy", LIFETIMES)
def test_every_lifetime_policy_is_understood(net: Network, policy: object) -> None:
    client = net.connect()
    properties: dict[str, object] = {
        "lifetime-policy": policy,
        "supported-dist-modes": Array("symbol", ["move", "copy"]),
        "other": 5,
    }
    source = Source(dynamic=True, dynamic_node_properties=properties)
    assert client.receiver(None, source=source).remote_source.address is not None
    target = Target(dynamic=True, dynamic_node_properties=properties)
    assert client.sender(None, target=target).remote_target.address is not None


@pytest.mark.spec("3.5.9")
@pytest.mark.parametrize(
    "properties",
    [
        {"lifetime-policy": "delete-on-close"},
        {"lifetime-policy": Accepted()},
        {"lifetime-policy": Described(Symbol("example:for-ever:list"), [])},
        {"lifetime-policy": Described(Symbol("amqp:delete-on-close:list"), 5)},
        {"supported-dist-modes": Symbol("throw")},
        {"supported-dist-modes": 1},
        {"supported-dist-modes": Array("symbol", ["move", "throw"])},
        {"supported-dist-modes": ["move"]},
        {"supported-dist-modes": "move"},
        {"supported-dist-modes": Array("string", ["move"])},
        {"lifetime-policy": None},
    ],
    ids=str,
)
def test_other_values_of_node_properties_are_refused(
    net: Network, properties: dict[str, object]
) -> None:
    client = net.connect()
    source = Source(dynamic=True, dynamic_node_properties=properties)
    assert refused(client.receiver(None, source=source), "amqp:invalid-field")
    target = Target(dynamic=True, dynamic_node_properties=properties)
    assert refused(client.sender(None, target=target), "amqp:invalid-field")
    assert net.space.nodes == {}


@pytest.mark.spec("3.5.9")
@pytest.mark.parametrize("mode", ["move", "copy"])
def test_one_distribution_mode_needs_no_array(net: Network, mode: str) -> None:
    source = Source(dynamic=True, dynamic_node_properties={"supported-dist-modes": Symbol(mode)})
    receiver = net.connect().receiver(None, source=source)
    assert receiver.attached and not receiver.detached


@pytest.mark.spec("3.5.3")
def test_node_properties_of_a_source_that_is_not_dynamic_are_refused(net: Network) -> None:
    source = Source(address="q", dynamic_node_properties={"lifetime-policy": DeleteOnClose()})
    assert refused(net.connect().receiver("q", source=source), "amqp:invalid-field")


@pytest.mark.spec("3.5.4")
def test_node_properties_of_a_target_that_is_not_dynamic_are_refused(net: Network) -> None:
    target = Target(address="q", dynamic_node_properties={"lifetime-policy": DeleteOnClose()})
    assert refused(net.connect().sender("q", target=target), "amqp:invalid-field")


# -- filters and durability ------------------------------------------------------------


@pytest.mark.spec("3.5.8")
@pytest.mark.parametrize("filter", ["a = 1", Symbol("all"), {"a": 1}, 5])
def test_a_filter_that_is_not_described_is_refused(net: Network, filter: object) -> None:
    source = Source(address="q", filter={"selector": filter})
    assert refused(net.connect().receiver("q", source=source), "amqp:invalid-field")


@pytest.mark.spec("3.5.8", "3.5.3")
def test_only_filters_that_are_in_place_come_back(net: Network) -> None:
    selector = Described(Symbol("apache.org:selector-filter:string"), "a = 1")
    filters: dict[str, object] = {
        "selector": selector,
        "colour": Described(Symbol("example:colour-filter:string"), "blue"),
        "nothing": None,
    }
    client = net.connect()
    sender = client.sender("q")
    sender.send_sections(ApplicationProperties(value={"a": 2}), Data(value=b"2"))
    sender.send_sections(ApplicationProperties(value={"a": 1}), Data(value=b"1"))
    receiver = client.receiver("q", source=Source(address="q", filter=filters), credit=10)
    assert list(receiver.remote_source.filter or {}) == ["selector"]
    assert receiver.bodies() == [b"1"]


@pytest.mark.spec("3.5.1")
def test_a_filter_decides_about_a_message_as_before(net: Network) -> None:
    client = net.connect()
    sender = client.sender("q")
    for number in (1, 2, 1, 2):
        sender.send_sections(ApplicationProperties(value={"a": number}), Data(value=b"%d" % number))
    selector = Described(Symbol("apache.org:selector-filter:string"), "a = 1")
    receiver = client.receiver("q", source=Source(address="q", filter={"s": selector}), credit=99)
    for _ in range(3):
        assert receiver.bodies() == [b"1", b"1"]
        receiver.settle(Modified(delivery_failed=True, message_annotations={"x-seen": True}))
    receiver.close()
    others = client.receiver("q", source=Source(address="q", filter={"s": selector}), credit=99)
    assert others.bodies() == [b"1", b"1"]


@pytest.mark.spec("broker-2.3.10")
def test_a_filter_that_is_demanded_and_unknown_costs_the_link(net: Network) -> None:
    client = net.connect()
    filters: dict[str, object] = {
        "local": NoLocalFilter(),
        "colour": Described(Symbol("example:colour-filter:string"), "blue"),
    }
    source = Source(address="q", filter=filters)
    demand: dict[str, object] = {"ferrymq:require-filters": True}
    receiver = client.receiver("q", source=source, properties=demand)
    assert refused(receiver, "amqp:not-implemented")
    assert receiver.error is not None and "'colour'" in str(receiver.error.description)
    assert "'local'" not in str(receiver.error.description)
    del filters["colour"]
    kept = client.receiver("q", source=source, properties=demand)
    assert not kept.detached and list(kept.remote_source.filter or {}) == ["local"]
    wrong: dict[str, object] = {"ferrymq:require-filters": "yes"}
    assert refused(client.receiver("q", properties=wrong), "amqp:invalid-field")


@pytest.mark.spec("3.5.5")
def test_durability_is_not_claimed(net: Network) -> None:
    client = net.connect()
    target = Target(address="q", durable=TerminusDurability.UNSETTLED_STATE)
    sender = client.sender("q", target=target)
    kept = TerminusDurability.NONE if net.store is None else TerminusDurability.UNSETTLED_STATE
    assert sender.remote_target.durable is kept
    source = Source(address="q", durable=TerminusDurability.CONFIGURATION)
    receiver = client.receiver("q", source=source)
    kept = TerminusDurability.NONE if net.store is None else TerminusDurability.CONFIGURATION
    assert receiver.remote_source.durable is kept


# -- what is handed on as it came ------------------------------------------------------


@pytest.mark.spec("3.2.1")
def test_a_header_is_handed_on_as_it_came(net: Network) -> None:
    client = net.connect()
    sender = client.sender("q")
    for priority in (9, 4, 0):
        sender.send_sections(
            Header(durable=True, priority=priority, ttl=60_000), Data(value=bytes([priority]))
        )
    receiver = client.receiver("q", credit=10)
    headers = [header(delivery.payload) for delivery in receiver.deliveries]
    assert [h.priority for h in headers] == [9, 4, 0]
    assert all(h.durable and h.ttl == 60_000 for h in headers)


@pytest.mark.spec("2.2.3")
def test_messages_of_one_priority_keep_their_order(net: Network) -> None:
    client = net.connect()
    sender = client.sender("q")
    for number in range(20):
        sender.send_sections(Header(priority=number % 2), Data(value=bytes([number])))
    bodies = [body[0] for body in client.receiver("q", credit=20).bodies()]
    assert [n for n in bodies if n % 2] == list(range(1, 20, 2))
    assert [n for n in bodies if not n % 2] == list(range(0, 20, 2))


@pytest.mark.spec("3.2.10")
def test_annotations_nobody_knows_are_handed_on(net: Network) -> None:
    client = net.connect()
    client.sender("q").send_sections(
        DeliveryAnnotations(value={"example-hop": 1}),
        MessageAnnotations(value={"example-route": 2, 7: "number"}),
        Data(value=b"a"),
        Footer(value={"example-sum": 3}),
    )
    (delivery,) = client.receiver("q", credit=1).take()
    sections = decode(delivery.payload)
    # Delivery-annotations are for one hop alone.
    assert [type(s) for s in sections] == [MessageAnnotations, Data, Footer]
    assert sections[0] == MessageAnnotations(value={"example-route": 2, 7: "number"})


@pytest.mark.spec("3.4.3")
def test_a_rejected_message_is_gone_and_counted(net: Network) -> None:
    client = net.connect()
    client.sender("q").send(b"a")
    client.receiver("q", credit=1).settle(Rejected())
    assert client.receiver("q", credit=1).bodies() == []
    assert net.queue("q").rejected == 1
