"""Rules that are not kept, or not everywhere: what happens instead."""

from __future__ import annotations

import pytest

from ferrymq.engine.pairing import paired_properties
from ferrymq_broker.values.policy import StreamPolicy
from ferrymq_types.messaging import Data, Header, Properties, Source, Target
from tests.broker.harness import Endpoint, Network, Sender, encode, header, text
from tests.broker.streams.kit import read
from tests.broker.test_termini import refused


@pytest.mark.spec("broker-2.2.5", "3.2.1")
def test_a_stream_shows_its_records_whatever_ttl_they_had(net: Network) -> None:
    net.space.create("s", StreamPolicy())
    sender = net.connect().sender("s")
    sender.send_sections(Header(ttl=1000, priority=9), Data(value=b"a"))
    net.advance(10)
    (record,) = read(net.connect(), "s", "first", credit=1).take()
    assert text(record.payload) == b"a"
    assert header(record.payload) == Header(ttl=1000, priority=9)


@pytest.mark.spec("broker-2.2.1")
@pytest.mark.parametrize(
    "rest",
    [
        b"\x00\x53\x75\xa0\x05ab",
        b"\x00\x53\x73\xc0\x05\x01",
        b"\x00\x53\x77\xa1\x02\xff\xff",
        b"\x00\x53\x77",
    ],
    ids=["data cut off", "properties cut off", "no UTF-8", "no value"],
)
def test_a_bare_message_goes_on_as_it_came(net: Network, rest: bytes) -> None:
    """What is in front of it is read, and refused if malformed; this is for its receiver."""
    payload = encode(Header(durable=True)) + rest
    client = net.connect()
    client.sender("q").send_encoded(payload)
    (delivery,) = client.receiver("q", credit=1).take()
    assert delivery.payload == payload


@pytest.mark.spec("3.5.8")
def test_links_tell_of_filters_by_their_offered_capabilities(net: Network) -> None:
    client = net.connect()
    link = client.session.attach_receiver(
        "link",
        source=Source(address="q", capabilities=["AMQP_FILTEX_SQL_V1_0"]),
        target=Target(),
        desired_capabilities=["AMQP_FILTEX_SQL_V1_0", "AMQP_FILTEX_PROP_V1_0", "flying"],
    )
    client.links[link] = Endpoint(client, link)
    net.run()
    attach = link.remote_attach
    assert attach is not None and attach.source is not None
    assert attach.source.capabilities is None
    assert attach.offered_capabilities == ["AMQP_FILTEX_SQL_V1_0", "AMQP_FILTEX_PROP_V1_0"]


@pytest.mark.spec("pairing-2.2.1")
def test_the_anonymous_terminus_makes_no_pairs(net: Network) -> None:
    client = net.connect()
    link = client.session.attach_sender(
        "pair", source=Source(address="me"), target=Target(), properties=paired_properties()
    )
    client.links[link] = sender = Sender(client, link)
    net.run()
    assert refused(sender, "amqp:not-implemented")
    # Without a pair it is there.
    sender = client.sender(None, target=Target())
    sender.send_sections(Properties(to="q"), Data(value=b"a"))
    assert client.receiver("q", credit=1).bodies() == [b"a"]


@pytest.mark.spec("3.2.4")
def test_the_user_id_is_the_senders_own_affair(net: Network) -> None:
    client = net.connect()
    client.sender("q").send_sections(Properties(user_id=b"the king"), Data(value=b"a"))
    (delivery,) = client.receiver("q", credit=1).take()
    assert text(delivery.payload) == b"a"
    assert delivery.payload == encode(Properties(user_id=b"the king"), Data(value=b"a"))
    assert header(delivery.payload) == Header()
