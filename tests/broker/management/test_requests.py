"""What every request to a management node is answered, whatever it is about."""

from __future__ import annotations

from uuid import UUID

import pytest

from ferrymq_broker.nodes.exchanges.exchange import Exchange
from ferrymq_broker.values.policy import ExchangePolicy
from ferrymq_codec.scalars import Int, ULong
from ferrymq_types.messaging import (
    Accepted,
    AmqpSequence,
    AmqpValue,
    ApplicationProperties,
    Data,
    Header,
    MessageAnnotations,
    Properties,
    Rejected,
)
from ferrymq_types.unions import Section
from tests.broker.harness import Network, decode
from tests.broker.management.asker import Asker, read_answer

READ: dict[str, object] = {"operation": "READ", "type": "broker", "name": "broker"}


def test_a_request_is_accepted_and_answered(asker: Asker) -> None:
    asked = Properties(message_id="1", reply_to=asker.reply_to)
    sent = asker.sender.send_sections(asked, ApplicationProperties(READ))
    assert isinstance(sent.remote_state, Accepted)
    (delivery,) = asker.receiver.deliveries
    answer = read_answer(delivery.payload)
    assert (answer.status, answer.description) == (200, "OK")
    assert answer.about.to == asker.reply_to
    assert type(answer.properties["statusCode"]) is Int


@pytest.mark.parametrize(
    "id",
    ["text", b"bytes", ULong(7), UUID("12345678-1234-5678-1234-567812345678")],
    ids=["string", "binary", "ulong", "uuid"],
)
def test_the_correlation_id_has_the_type_of_the_message_id(
    asker: Asker, id: str | bytes | int | UUID
) -> None:
    asked = Properties(message_id=id, reply_to=asker.reply_to)
    asker.sender.send_sections(asked, ApplicationProperties(READ))
    (delivery,) = asker.receiver.deliveries
    answer = read_answer(delivery.payload)
    assert answer.about.correlation_id == id
    # An ulong is read as an int; there is no other type of message-id with that.
    assert isinstance(answer.about.correlation_id, int if isinstance(id, int) else type(id))


def test_a_correlation_id_of_the_request_goes_before_its_message_id(asker: Asker) -> None:
    asked = Properties(message_id="m", correlation_id="c", reply_to=asker.reply_to)
    asker.sender.send_sections(asked, ApplicationProperties(READ))
    (delivery,) = asker.receiver.deliveries
    assert read_answer(delivery.payload).about.correlation_id == "c"


def test_sections_may_come_in_any_order(asker: Asker) -> None:
    asked = Properties(message_id="1", reply_to=asker.reply_to)
    attributes = AmqpValue({"max-length": 5})
    create = ApplicationProperties({"operation": "CREATE", "type": "queue", "name": "q"})
    for sections in (
        [Header(), attributes, asked, create],
        [attributes, create, asked],
        [MessageAnnotations({"x-opt-other": 1}), create, asked, attributes],
    ):
        asker.sender.send_sections(*sections)
    answers = [read_answer(delivery.payload) for delivery in asker.receiver.deliveries]
    assert [answer.status for answer in answers] == [201, 200, 200]
    assert answers[0].map()["max-length"] == 5


@pytest.mark.parametrize(
    "bodies",
    [
        [],
        [AmqpValue(None)],
        [AmqpValue({})],
        [AmqpValue([])],
        [AmqpValue("")],
        [Data(b"")],
        [AmqpSequence([])],
    ],
    ids=["none", "null", "map", "list", "string", "data", "sequence"],
)
def test_an_empty_body_is_none_however_it_is_written(asker: Asker, bodies: list[Section]) -> None:
    asked = Properties(message_id="1", reply_to=asker.reply_to)
    asker.sender.send_sections(asked, ApplicationProperties(READ), *bodies)
    (delivery,) = asker.receiver.deliveries
    assert read_answer(delivery.payload).status == 200


@pytest.mark.parametrize(
    ("properties", "body", "status", "words"),
    [
        ({}, None, 400, "no operation"),
        ({"operation": 5, "type": "queue"}, None, 501, "5"),
        ({"operation": True, "type": "queue"}, None, 400, "operation"),
        ({"operation": "READ", "type": "queue"}, None, 400, "needs a name or an identity"),
        ({"operation": "READ", "name": "q"}, None, 400, "needs the type"),
        ({"operation": "READ", "type": "qeue", "name": "q"}, None, 400, "qeue"),
        ({"operation": "READ", "type": "queue", "name": "q"}, None, 404, "no queue 'q'"),
        ({"operation": "READ", "type": "queue", "name": "q"}, {"a": 1}, 400, "'a'"),
        ({"operation": "READ", "type": "queue", "name": "q"}, {5: 1}, 400, "body"),
        ({"operation": "READ", "type": "queue", "name": "q"}, "text", 400, "body"),
        ({"operation": "BREW", "type": "queue", "name": "q"}, None, 501, "BREW"),
        ({"operation": "BREW"}, None, 501, "BREW"),
        ({"operation": "REGISTER", "type": "org.amqp.management"}, None, 501, "REGISTER"),
        ({"operation": "DEREGISTER", "type": "org.amqp.management"}, None, 501, "DEREGISTER"),
        ({"operation": "PURGE", "type": "connection", "name": "1"}, None, 501, "PURGE"),
        ({"operation": "CREATE", "type": "connection", "name": "1"}, None, 501, "CREATE"),
    ],
)
def test_a_request_that_makes_no_sense_is_answered_with_the_reason(
    asker: Asker, properties: dict[str, object], body: object, status: int, words: str
) -> None:
    answer = asker.ask(None, None, None, body, properties)
    assert answer.status == status
    assert words in answer.description


def test_a_request_that_is_no_message_is_rejected(asker: Asker) -> None:
    sent = asker.sender.send_encoded(b"\x00\x53\x77\xa1\x7fshort")
    assert isinstance(sent.remote_state, Rejected)
    assert sent.remote_state.error is not None
    assert sent.remote_state.error.condition == "amqp:decode-error"
    assert asker.ask("READ", "broker", "broker").status == 200


def test_without_reply_to_and_response_link_it_is_done_all_the_same(net: Network) -> None:
    sender = net.connect().sender("$management")
    create = ApplicationProperties({"operation": "CREATE", "type": "queue", "name": "q"})
    sent = sender.send_sections(create, AmqpValue({}))
    assert isinstance(sent.remote_state, Accepted)
    assert "q" in net.space.nodes


@pytest.mark.parametrize("reply_to", ["nowhere", "$management", "$me", "nowhere::part", ""])
def test_a_reply_to_that_leads_nowhere_is_refused_and_nothing_is_done(
    net: Network, reply_to: str
) -> None:
    sender = net.connect().sender("$management")
    create = ApplicationProperties({"operation": "CREATE", "type": "queue", "name": "q"})
    sent = sender.send_sections(Properties(reply_to=reply_to), create)
    assert isinstance(sent.remote_state, Rejected)
    assert sent.remote_state.error is not None
    assert sent.remote_state.error.condition in ("amqp:not-found", "amqp:not-allowed")
    assert "q" not in net.space.nodes
    # Nor is a queue made for it.
    assert "nowhere" not in net.space.nodes


def test_responses_may_go_to_a_queue_of_another(net: Network) -> None:
    net.declare("answers")
    client = net.connect()
    sender = client.sender("$management")
    sender.send_sections(Properties(reply_to="answers"), ApplicationProperties(READ))
    receiver = net.connect().receiver("answers", credit=1)
    assert read_answer(receiver.deliveries[0].payload).status == 200


def test_nobody_asks_in_the_name_of_another(net: Network) -> None:
    """Neither the anonymous relay nor a node brings requests: who asks would not be known."""
    create = ApplicationProperties({"operation": "CREATE", "type": "queue", "name": "q"})
    relay = net.connect().sender(None)
    sent = relay.send_sections(Properties(to="$management"), create)
    assert isinstance(sent.remote_state, Rejected)
    assert sent.remote_state.error is not None
    assert sent.remote_state.error.condition == "amqp:not-allowed"
    assert "q" not in net.space.nodes


def test_the_response_is_a_value_without_further_sections(asker: Asker) -> None:
    asker.sender.send_sections(
        Properties(message_id="1", reply_to=asker.reply_to), ApplicationProperties(READ)
    )
    kinds = [type(section) for section in decode(asker.receiver.deliveries[0].payload)]
    assert kinds == [Properties, ApplicationProperties, AmqpValue]


@pytest.mark.parametrize("reply_to", ["responses", "topical::key", "by-alias"])
def test_a_response_goes_where_any_message_to_that_address_would(
    net: Network, reply_to: str
) -> None:
    net.declare("responses")
    exchange = net.space.create("topical", ExchangePolicy())
    assert isinstance(exchange, Exchange)
    exchange.bind("responses", "key")
    # An alias may stand for a part.
    net.space.aliases["by-alias"] = "topical::key"
    client = net.connect()
    asked = Properties(message_id="1", reply_to=reply_to)
    sent = client.sender("$management").send_sections(asked, ApplicationProperties(READ))
    assert isinstance(sent.remote_state, Accepted)
    (delivery,) = client.receiver("responses", credit=1).deliveries
    assert read_answer(delivery.payload).status == 200
