"""Rules are met by the names that a client uses, and by what these become."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.raw.answers import condition_of
from tests.raw.client import Client
from tests.raw.frames import attach_frame, source, target, transfer_frame
from tests.raw.process import Broker
from tests.raw.values import NULL, binary, composite, data_section, string, symbol, uint
from tests.wire.control import exchange, outcomes_by_id

UNAUTHORIZED = "amqp:unauthorized-access"


CONFIG = """
[security.users]
ann = "a long password"

[[topic]]
name = "news"
[[queue]]
name = "all"
[[exchange]]
name = "ex"
routing = "topic"
[[exchange.binding]]
key = "#"
to = "all"

[[rule]]
who = "user:ann"
may-not = ["send", "receive"]
where = ["ex::secret.*", "news::secret"]
[[rule]]
who = "user:ann"
may = ["send", "receive"]
where = ["ex", "news", "all"]
"""


@pytest.fixture
def ann(broker: Broker) -> Iterator[Client]:
    """A peer that has logged in, with a session."""
    with Client(broker.port) as client:
        yield client.authenticate("PLAIN", b"\0ann\0a long password").begin()


@pytest.mark.parametrize("address", ["ex", ""], ids=["link", "message"])
def test_a_key_that_a_message_brings(broker: Broker, ann: Client, address: str) -> None:
    to = NULL if address else string("ex")
    messages = [
        composite(0x73, [NULL, NULL, to, string(key)]) + data_section(b"x")
        for key in ("public.a", "secret.a")
    ]
    where = target(string(address) if address else NULL)
    answers = exchange(
        ann,
        attach_frame("s", 0, source=source(), target=where),
        *(
            transfer_frame(message, 0, uint(number), binary(b"%d" % number))
            for number, message in enumerate(messages)
        ),
    )
    outcomes = outcomes_by_id(answers)
    assert outcomes[0].name == "accepted"
    error = condition_of(outcomes[1].field(0))
    assert outcomes[1].name == "rejected" and error is not None and error[0] == UNAUTHORIZED
    broker.check()


@pytest.mark.parametrize("name", ["secret", "other"])
def test_a_subscription_that_has_its_name_from_the_link(
    broker: Broker, ann: Client, name: str
) -> None:
    where = source(string("news"), durable=uint(2), expiry=symbol("never"))
    ann.send(attach_frame(name, 0, receiver=True, source=where, target=target()))
    assert (ann.expect("attach", "flow").field(5) is None) == (name == "secret")
    if name == "secret":
        assert ann.expect("detach", "flow").condition == UNAUTHORIZED
    broker.check()
