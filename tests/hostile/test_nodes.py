"""Messages that go round in circles, and messages that nobody survives."""

from __future__ import annotations

from tests.hostile.site import Site
from tests.raw.answers import Composite
from tests.raw.frames import (
    attach_frame,
    disposition_frame,
    flow_frame,
    source,
    target,
    transfer_frame,
)
from tests.raw.values import FALSE, NULL, TRUE, binary, composite, data_section, string, uint

# How often a message may fail before it is a dead letter.
LIMIT = 3


CONFIG = f"""
[[queue]]
name = "poisoned"
delivery-limit = {LIMIT}
dead-letter = "dead"

[[queue]]
name = "dead"

[[queue]]
name = "round"
max-length = 1
overflow = "dead-letter"
dead-letter = "about"

[[queue]]
name = "about"
max-length = 1
overflow = "dead-letter"
dead-letter = "round"

[[queue]]
name = "short"
message-ttl = "1ms"
dead-letter = "lived"

[[queue]]
name = "lived"
message-ttl = "1ms"
dead-letter = "short"
"""


MODIFIED = composite(0x27, [TRUE, FALSE])
ACCEPTED = composite(0x24, [])


def settle(number: object, state: bytes) -> bytes:
    assert isinstance(number, int)
    return disposition_frame(number, settled=TRUE, state=state)


def test_a_poison_message_goes_where_dead_letters_go(site: Site) -> None:
    """However often a client takes it and fails, it does so at most so many times."""

    def attack() -> None:
        with site.client() as client:
            client.begin().sender("poisoned").publish([data_section(b"poison")])
            client.receiver("poisoned", 100)
            for _ in range(LIMIT + 1):
                client.send(settle(client.arrivals(1)[0].field(1), MODIFIED))
            client.receiver("dead", 100, "d", 2)
            answer = client.arrivals(1)[0]
            assert answer.field(0) == 2
            # Its annotations say why; the rest of it is as it was.
            assert answer.payload.endswith(data_section(b"poison"))
            client.send(settle(answer.field(1), ACCEPTED))
            client.close()

    site.endures(attack)


def test_who_goes_with_a_message_has_failed_too(site: Site) -> None:
    """A message that kills whoever takes it is no different."""

    def attack() -> None:
        with site.client() as client:
            client.begin().sender("poisoned").publish([data_section(b"deadly")])
            client.close()
        for _ in range(LIMIT + 1):
            with site.client() as client:
                client.begin().receiver("poisoned", 1)
                client.arrivals(1)
        with site.client() as client:
            client.begin().receiver("dead", 1)
            answer = client.arrivals(1)[0]
            assert answer.payload.endswith(data_section(b"deadly"))
            client.send(settle(answer.field(1), ACCEPTED))
            client.close()

    site.endures(attack)


def test_messages_that_expire_in_a_circle(site: Site) -> None:
    """Two queues whose messages live for a millisecond, and then go to the other."""

    def attack() -> None:
        with site.client() as client:
            client.begin().sender("short").publish([data_section(b"%d" % n) for n in range(100)])
            client.close()

    site.endures(attack)


def test_two_full_queues_that_push_out_to_each_other(site: Site) -> None:
    """Each message that comes would push another out for ever."""

    def attack() -> None:
        with site.client() as client:
            client.begin().sender("round").publish([data_section(b"%d" % n) for n in range(200)])
            client.close()

    site.endures(attack)
    with site.client() as client:
        client.begin()
        for handle, queue in enumerate(("round", "about")):
            client.receiver(queue, 10, queue, handle)
            assert len(client.arrivals(1)) == 1
        client.close()


def test_names_are_of_the_clients_choice(site: Site) -> None:
    """Whatever bytes they have, they are names, in the log too."""
    names = ["a\nERROR forged", "\x1b[2J", "\u202e", "a" * 1_000, "*", "#", "..", "/", "%s%n"]

    def attack() -> None:
        with site.client() as client:
            client.begin()
            for number, name in enumerate(names):
                client.sender(name, name, number)
            client.close()

    site.endures(attack)
    assert "\nERROR forged" not in site.broker.log and "\x1b" not in site.broker.log


def test_an_address_of_many_parts(site: Site) -> None:
    """Half a million separators in the `to` of a message: none is a name, and the broker says so
    at once."""
    address = string("a" + "::" * 500_000)
    payload = composite(0x73, [NULL, NULL, address]) + data_section()
    pieces = [payload[at : at + 60_000] for at in range(0, len(payload), 60_000)]

    def attack() -> None:
        with site.client() as client:
            anonymous = attach_frame("s", 0, target=target(), source=source())
            client.begin().sender("", attach=anonymous)
            for at, piece in enumerate(pieces):
                first = (uint(0), binary(b"0")) if at == 0 else (NULL, NULL)
                more = FALSE if at + 1 == len(pieces) else TRUE
                client.send(transfer_frame(piece, 0, *first, more=more))
            while (answer := client.read()) is not None and answer.name in ("empty", "flow"):
                pass
            assert answer is not None and answer.name == "disposition"
            state = answer.field(4)
            assert isinstance(state, Composite) and state.name == "rejected"

    site.endures(attack)


def test_outcomes_that_no_one_offered(site: Site, address: str) -> None:
    """Of a transaction that does not exist, of types of which nobody has heard."""
    strange = [
        composite(0x34, [string("t")]),
        composite(0x34, [b"\xa0\x01t"]),
        composite(0x33, [b"\xa0\x01t"]),
        composite(0x99, []),
        composite(0x24, [TRUE]),
        composite(0x70, []),
    ]

    def attack() -> None:
        for state in strange:
            with site.client() as client:
                client.begin().sender(address).publish([data_section()])
                client.receiver(address, 1)
                number = client.arrivals(1)[0].field(1)
                client.send(settle(number, state), flow_frame(echo=TRUE))
                while (answer := client.read()) is not None and answer.name in ("empty", "flow"):
                    if answer.name == "flow" and answer.field(4) is None:
                        break
                assert not isinstance(answer, Composite)

    site.endures(attack)
