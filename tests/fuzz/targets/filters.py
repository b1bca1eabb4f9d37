"""The filter-set of a source, as it comes over the wire, and what it makes of some messages."""

from __future__ import annotations

from random import Random

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.filters.parse import parse_filters
from ferrymq_broker.nodes.message import admit
from ferrymq_codec.errors import DecodeError
from ferrymq_codec.reader import Reader
from ferrymq_codec.scalars import Described, Symbol, Timestamp, ULong
from ferrymq_servicebus.hub_tables import HUB_TABLES
from ferrymq_types.messaging import Source
from ferrymq_types.unions import decode_source
from tests.fuzz.mutation.values import mutate_values
from tests.fuzz.pool import MESSAGES
from tests.support.script import encode

_MESSAGES = [admit(payload, 0) for payload in MESSAGES]


def one(data: bytes) -> None:
    """Decode a source and look into its filters."""
    try:
        source = decode_source(Reader(data, 0, len(data)), "source")
        found = parse_filters(source.filter, 1, dict(HUB_TABLES.position_words))
    except DecodeError:
        return
    except BrokerError as error:
        assert error.condition == "amqp:invalid-field"
        return
    for predicate in (found.predicate, found.instead):
        if predicate is not None:
            for message in _MESSAGES:
                assert predicate.matches(message) in (True, False)


def _source(name: str, descriptor: object, value: object) -> bytes:
    return encode(Source(address="a", filter={name: Described(descriptor, value)}))


def seeds() -> list[bytes]:
    """A filter of each kind, by its name and by its number."""
    text = "colour = 'red'"
    entries: dict[str, object] = {"subject": "a.b", "message-id": "one", "colour": "red"}
    return [
        encode(Source(address="a")),
        _source("s", Symbol("apache.org:selector-filter:string"), text),
        _source("s", ULong(0x468C00000004), text),
        _source("q", Symbol("amqp:sql-filter"), text),
        _source("d", Symbol("apache.org:legacy-amqp-direct-binding:string"), "a.b"),
        _source("t", Symbol("apache.org:legacy-amqp-topic-binding:string"), "a.*.#"),
        _source("h", Symbol("apache.org:legacy-amqp-headers-binding:map"), {"x-match": "any"}),
        _source("n", Symbol("apache.org:no-local-filter:list"), []),
        _source("p", Symbol("amqp:properties-filter"), entries),
        _source("a", ULong(0x174), {"colour": "&p:re", "weight": 5}),
        _source("r", Symbol("rabbitmq:stream-offset-spec"), "first"),
        _source("r", Symbol("rabbitmq:stream-offset-spec"), Timestamp(5)),
        _source("f", Symbol("ferrymq:position"), 5),
        _source("e", Symbol("apache.org:selector-filter:string"),
                "amqp.annotation.x-opt-offset > '@latest'"),
        encode(Source(address="a", filter={"jms-selector": text})),
    ]  # fmt: skip


def mutate(random: Random, data: bytes) -> bytes:
    """Other values in it."""
    return mutate_values(random, data)
