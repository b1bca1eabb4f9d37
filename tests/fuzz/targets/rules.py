"""Filters and actions of rules, parsed and used: `BrokerError` with a place in the text, or a rule
that changes copies of messages into messages, in time that follows the length."""

from __future__ import annotations

import time
from random import Random

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.filters.action_parser import parse_action
from ferrymq_broker.filters.selector import Selector
from ferrymq_broker.filters.selector_parser import parse_rule
from ferrymq_broker.nodes.message import admit
from ferrymq_broker.nodes.message_draft import MAX_CHANGED
from tests.fuzz.mutation.plain import mutate_text
from tests.fuzz.pool import MESSAGES
from tests.fuzz.targets import selector

_MESSAGES = [admit(payload, 0) for payload in MESSAGES]
# Seconds of the processor for any text.
_MOST = 3.0


def one(data: bytes) -> None:
    """Parse the text as a filter or as an action, and use it on some messages."""
    if not data:
        return
    text = data[1:].decode("utf-8", "surrogateescape" if data[0] & 2 else "replace")
    begun = time.process_time()
    try:
        if data[0] & 1:
            _act(text)
        else:
            found = Selector(parse_rule(text))
            for message in _MESSAGES:
                assert found.matches(message) in (True, False)
    except BrokerError as error:
        assert error.condition == "amqp:invalid-field"
    assert time.process_time() - begun < _MOST


def _act(text: str) -> None:
    action = parse_action(text)
    for message in _MESSAGES:
        before = message.payload
        copy = action.apply(message)
        assert message.payload == before and copy is not message
        assert len(copy.payload) <= len(before) + MAX_CHANGED + 64
        # What a copy is can be taken in like what a client sends, and is the same then.
        again = admit(copy.payload, copy.format, False)
        assert (again.payload, again.header_end) == (copy.payload, copy.header_end)
        assert (again.ttl, again.priority, again.durable) == (
            copy.ttl,
            copy.priority,
            copy.durable,
        )


def seeds() -> list[bytes]:
    """Filters and actions of every kind."""
    filters = [b"\0" + text for text in _FILTERS] + [b"\0" + seed[1:] for seed in selector.seeds()]
    return filters + [b"\1" + text for text in _ACTIONS]


def mutate(random: Random, data: bytes) -> bytes:
    """Other words."""
    if random.random() < 0.05:
        return bytes((random.randrange(4),)) + data[1:]
    return (data[:1] or b"\0") + mutate_text(random, data[1:], _WORDS)


_FILTERS = (
    b"sys.subject = 'a' AND user.colour = 'red'",
    b"sys.[message-id] = newid() OR property('colour') = p(\"colour\")",
    b"colour + 'x' = 'redx' AND weight + 1 = 2\nAND EXISTS(sys.Label)",
    b"sys.reply-to-group-id IS NOT NULL AND sys.priority-1 > 3",
)
_ACTIONS = (
    b"SET colour = 'blue'",
    b"SET a = colour + colour; SET a = a + a; SET a = a + a; REMOVE colour;",
    b"SET sys.subject = newid(); SET sys.ttl = weight * 1000; REMOVE sys.to",
    b"SET [a b] = weight > 3;\nSET user.x = property('weight') % 2;\nREMOVE \"a b\"",
    b"SET sys.message-id = weight; SET sys.correlation-id = colour; SET sys.priority = 9",
    b"SET sys.group-sequence = 7; SET sys.content-type = 'text/plain'; REMOVE sys.group-id",
)
_WORDS = (
    *selector.WORDS,
    b"SET ", b"REMOVE ", b";", b"sys.", b"user.", b"sys.ttl", b"sys.label", b"sys.message-id",
    b"newid()", b"property(", b"p(", b"\n", b"colour = colour + colour", b"[a b]",
)  # fmt: skip
