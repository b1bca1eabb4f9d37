"""Selectors, parsed and evaluated: `BrokerError` with a place in the text, or a condition that says
the same when it is written out, in time that follows the length."""

from __future__ import annotations

import time
from random import Random

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.filters.selector import Selector
from ferrymq_broker.filters.selector_parser import parse
from ferrymq_broker.nodes.message import admit
from tests.fuzz.mutation.plain import mutate_text
from tests.fuzz.pool import MESSAGES

_MESSAGES = [admit(payload, 0) for payload in MESSAGES]
# Seconds of the processor for any text; what takes longer does not grow with the length alone.
_MOST = 3.0


def one(data: bytes) -> None:
    """Parse the text, evaluate it for some messages."""
    if not data:
        return
    text = data[1:].decode("utf-8", "surrogateescape" if data[0] & 2 else "replace")
    begun = time.process_time()
    try:
        condition = parse(text, bool(data[0] & 1))
    except BrokerError as error:
        assert error.condition == "amqp:invalid-field"
        assert time.process_time() - begun < _MOST
        return
    found = Selector(condition)
    for message in _MESSAGES:
        assert found.matches(message) in (True, False)
    condition.render()
    assert time.process_time() - begun < _MOST


def seeds() -> list[bytes]:
    """Selectors of every kind."""
    return [bytes((sql,)) + text for sql in (0, 1) for text in _TEXTS]


def mutate(random: Random, data: bytes) -> bytes:
    """Other words."""
    if random.random() < 0.05:
        return bytes((random.randrange(4),)) + data[1:]
    return (data[:1] or b"\0") + mutate_text(random, data[1:], WORDS)


_TEXTS = (
    b"colour = 'red'",
    b"colour = 'red' AND weight > 3 OR NOT none IS NULL",
    b"weight BETWEEN 1 AND 10 AND x * 2 + 1 >= 3 / 4 - -5",
    b"colour IN ('red', 'blue') AND colour NOT IN ('x')",
    b"colour LIKE '%r_d%' ESCAPE '!' AND colour NOT LIKE '%_%_%_%_%_%'",
    b"JMSPriority > 3 AND JMSCorrelationID IS NOT NULL AND JMSDeliveryMode = 'PERSISTENT'",
    b"properties.subject = 'a.b' AND header.priority >= 4 AND EXISTS(colour)",
    b"(((colour = 'it''s'))) <> TRUE",
    b"amqp.annotation.x-opt-partition-key = 'a'",
    b"0x1F = 31 AND 1e5 > .5 AND 7L <> 08",
    b"colour = 'red'" + b" AND colour = 'red'" * 60,
    b"(" * 40 + b"TRUE" + b")" * 40,
    b"x-opt-offset > '5'",
)
WORDS = (
    b"AND", b"OR", b"NOT", b"IS", b"NULL", b"TRUE", b"FALSE", b"LIKE", b"ESCAPE", b"IN", b"BETWEEN",
    b"EXISTS", b"UTC()", b"(", b")", b",", b"=", b"<>", b"!=", b"<", b"<=", b">", b">=", b"+", b"-",
    b"*", b"/", b"%", b"'a'", b"''", b"'", b'"a b"', b"[a]", b"colour", b"weight", b"x", b"none",
    b"header.priority", b"h.ttl", b"properties.message-id", b"p.subject", b"a.b.c", b"1", b"0",
    b"-1", b"9223372036854775808", b"1e308", b"1.5", b".5", b"0x1f", b"'\\%\\_%'", b"JMSMessageID",
    b"'%_%_%_%_%_%_%_%_%'", b"\xc3\xa9", b"\xed\xa0\x80", b"\0", b"1d", b"2.5f", b"07", b"inf",
)  # fmt: skip
