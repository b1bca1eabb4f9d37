"""Attaches in the words of another broker, and answers in the same words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.nodes.link_terms import SourceTerms, TargetTerms
from ferrymq_broker.nodes.personality import Personality
from ferrymq_broker.values.policy import QueuePolicy, StreamPolicy
from ferrymq_codec.scalars import Described, Symbol
from ferrymq_types.messaging import Data, Properties, Source, Target, TerminusDurability
from tests.broker.access.guarded import is_open
from tests.broker.harness import Network, Receiver

SESSION = "shop:session"
EPOCH = "shop:epoch"
VIA = "shop:via"


class Shop(Personality):
    """A session is a filter without a descriptor; an epoch has a name of its own."""

    def source(self, asked: Source, properties: dict[str, object]) -> Source:
        if EPOCH in properties:
            properties["ferrymq:epoch"] = properties.pop(EPOCH)
        filters = dict(asked.filter or {})
        if SESSION not in filters:
            return asked
        id = filters.pop(SESSION)
        filters["session"] = Described(Symbol("ferrymq:session"), id)
        return replace(asked, filter=filters)

    def source_granted(self, terms: SourceTerms) -> None:
        granted = terms.filters.granted
        if granted.pop("session", None) is not None:
            granted[SESSION] = terms.session
        if EPOCH in terms.asked_properties:
            terms.granted_properties[EPOCH] = terms.asked_properties[EPOCH]

    def target(self, asked: Target, properties: dict[str, object]) -> Target:
        if properties.get(VIA) == "nowhere":
            raise BrokerError("amqp:not-found", "there is no way to nowhere")
        properties.pop(VIA, None)
        return replace(asked, capabilities=["queue"])

    def target_granted(self, terms: TargetTerms) -> None:
        assert VIA not in terms.properties
        if VIA in terms.asked_properties:
            terms.granted_properties[VIA] = terms.asked_properties[VIA]


@pytest.fixture
def net() -> Network:
    net = Network()
    net.space.personality = Shop()
    return net


@pytest.mark.parametrize("id", ["s", None])
def test_a_session_is_asked_for_and_granted_with_a_plain_filter(
    net: Network, id: str | None
) -> None:
    net.declare("q", QueuePolicy(sessions=True))
    client = net.connect()
    client.sender("q").send_sections(Properties(group_id="s"), Data(value=b"x"))
    filters: dict[str, object] = {SESSION: id}
    receiver = client.receiver(None, source=Source(address="q", filter=filters), credit=1)
    assert receiver.bodies() == [b"x"]
    assert receiver.remote_source.filter == {SESSION: "s"}


def test_other_virtual_hosts_do_not_know_a_plain_filter() -> None:
    net = Network()
    filters: dict[str, object] = {SESSION: None}
    receiver = net.connect().receiver(None, source=Source(address="q", filter=filters))
    assert is_open(receiver) and receiver.remote_source.filter is None


def test_link_properties_of_a_source(net: Network) -> None:
    net.space.create("s", StreamPolicy())
    client = net.connect()
    first = client.receiver("s::0", properties={EPOCH: 1})
    assert first.link.remote_attach is not None
    answered = first.link.remote_attach.properties
    assert answered is not None and answered[EPOCH] == 1
    client.receiver("s::0", properties={EPOCH: 2})
    assert first.error is not None and first.error.condition == "amqp:link:stolen"


def test_a_target(net: Network) -> None:
    client = net.connect()
    sender = client.sender("q", properties={VIA: "somewhere"})
    assert is_open(sender) and sender.link.remote_attach is not None
    assert sender.link.remote_attach.properties == {VIA: "somewhere"}
    assert sender.remote_target.capabilities == ["queue"]
    refused = client.sender("q", properties={VIA: "nowhere"})
    assert refused.error is not None and refused.error.condition == "amqp:not-found"


def test_a_terminus_that_is_told_again(net: Network) -> None:
    durable = Source(address="q", durable=TerminusDurability.UNSETTLED_STATE, timeout=60)
    client = net.connect(container_id="me")
    client.receiver(None, source=durable, properties={EPOCH: 7}, name="kept").close(closed=False)
    link = client.session.attach_receiver("kept", source=None, target=Target())
    client.links[link] = Receiver(client, link)
    net.run()
    assert link.remote_attach is not None and link.remote_attach.source is not None
    assert link.remote_attach.source.address == "q"
