"""Dead letters that go back to a queue which remembers their message-ids."""

from __future__ import annotations

import pytest

from tests.raw.client import Client
from tests.raw.frames import disposition_frame, transfer_frame
from tests.raw.process import Broker
from tests.raw.values import NULL, TRUE, binary, composite, data_section, mapping, string, uint
from tests.wire.control import exchange, manage, outcomes_by_id, waiting

REJECTED = composite(0x25, [])


CONFIG = """
[[queue]]
pattern = "*.orders"
duplicate-window = "1h"
dead-letter = "dead"

[[queue]]
pattern = "*.careless"
duplicate-window = "1h"
dead-letter = "round"

[[queue]]
name = "dead"

[[queue]]
name = "round"
dead-letter = "test.careless"
"""


def bury(broker: Broker, address: str) -> None:
    """Send a message that has an id, and reject it."""
    with Client(broker.port) as client:
        client.begin().sender(address).publish([composite(0x73, [string("one")]) + data_section()])
        client.receiver(address)
        client.arrivals(1)
        exchange(client, disposition_frame(0, settled=TRUE, state=REJECTED))
    assert waiting(broker.port, address) == []


@pytest.mark.spec("3.2.4")
@pytest.mark.parametrize(
    ("back", "arrives"),
    [("as it is", False), ("another id", True), ("no id", True), ("moved", True)],
)
def test_a_dead_letter_goes_back(broker: Broker, back: str, arrives: bool) -> None:
    address = f"{back}.orders"
    bury(broker, address)
    if back == "moved":
        manage(broker.port, "MOVE", "dead", mapping(string("target"), string(address)))
    else:
        with Client(broker.port) as client:
            client.begin().receiver("dead", 1)
            (letter,) = client.arrivals(1)
            exchange(client, disposition_frame(0, settled=TRUE, state=composite(0x24, [])))
            payload = letter.payload
            known = composite(0x73, [string("one")])
            assert known in payload and b"x-opt-deadletter-count" in payload
            if back != "as it is":
                id = string("two") if back == "another id" else NULL
                payload = payload.replace(known, composite(0x73, [id]))
            client.sender(address)
            answers = exchange(client, transfer_frame(payload, 0, uint(0), binary(b"t")))
            # Told the same in all cases: who was in doubt knows now.
            assert outcomes_by_id(answers)[0].name == "accepted"
    assert len(waiting(broker.port, address)) == arrives
    assert waiting(broker.port, "dead") == []
    broker.check()


@pytest.mark.spec("3.2.4")
def test_a_dead_letter_that_the_broker_sends_back_is_none(broker: Broker) -> None:
    bury(broker, "test.careless")
    with Client(broker.port) as client:
        client.begin().receiver("round", 1)
        client.arrivals(1)
        exchange(client, disposition_frame(0, settled=TRUE, state=REJECTED))
    assert len(waiting(broker.port, "test.careless")) == 1
    broker.check()
