"""rhea, of Node: the same ground as Proton covers, with and without SASL."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.interop.broker_process import BrokerProcess
from tests.interop.relay import Relay
from tests.interop.rhea_client import Scenario, needs_rhea, run
from tests.interop.values import (
    APPLICATION_PROPERTIES,
    COMPOUNDS,
    DATA,
    PRIMITIVES,
    SEQUENCE,
    VALUE,
    Section,
    Value,
    application_properties,
    binary,
    canonical,
    integer,
    mapping,
    string,
    symbol,
)

pytestmark = [pytest.mark.interop, needs_rhea]

# rhea speaks SASL when it has a user name, and starts with the AMQP header when it has none.
WAYS_IN: dict[str, dict[str, Any]] = {
    "no SASL": {},
    "ANONYMOUS": {"username": "anonymous"},
    "PLAIN": {"username": "any", "password": "thing"},
}

USERS = """
[security]
anonymous = false
[security.users]
alice = "open sesame"
"""

IMPATIENT = """
[limits]
idle-time-out = 1.0
close-timeout = 0.5
"""


@pytest.fixture(scope="module")
def guarded() -> Iterator[BrokerProcess]:
    """A broker that knows its users."""
    with BrokerProcess(USERS) as process:
        yield process


def same(messages: Any) -> list[list[tuple[int, Value]]]:
    """The messages in a form in which equal ones are equal."""
    return [[(code, canonical(value)) for code, value in message] for message in messages]


# -- messages ------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS_IN)
def test_data_of_every_size(broker: BrokerProcess, address: str, way: str) -> None:
    sizes = [0, 1, 255, 256, 65_000, 65_536, 1_000_000, 10_000_000]
    results = run(broker, "exchange_sizes", address=address, sizes=sizes, options=WAYS_IN[way])
    assert results == [[size, True] for size in sizes]


def test_small_frames_in_both_directions(broker: BrokerProcess, address: str) -> None:
    """1 MB is then more frames than any session window."""
    options = {"max_frame_size": 512}
    sizes = [0, 512, 1_000_000]
    results = run(broker, "exchange_sizes", address=address, sizes=sizes, options=options)
    assert results == [[size, True] for size in sizes]


def test_value_of_every_type(broker: BrokerProcess, address: str) -> None:
    values = [value for values in PRIMITIVES.values() for value in values] + COMPOUNDS
    messages: list[list[Section]] = [[(VALUE, value)] for value in values]
    received = run(broker, "exchange_sections", address=address, messages=messages)
    assert same(received) == same(messages)


def test_sections_of_every_kind(broker: BrokerProcess, address: str) -> None:
    messages: list[list[Section]] = [
        [(DATA, binary(b""))],
        [(DATA, binary(bytes([n]) * n)) for n in range(20)],
        [(SEQUENCE, ["list", [integer("int", n)] * n]) for n in range(20)],
        [(APPLICATION_PROPERTIES, application_properties()), (VALUE, ["null"])],
        [
            (0x70, ["list", [["boolean", True], integer("ubyte", 7)]]),
            (0x72, mapping((symbol("x-opt-a"), string("b")))),
            (0x73, ["list", [["uuid", "ab" * 16], binary(b"me"), string("to")]]),
            (APPLICATION_PROPERTIES, application_properties()),
            (VALUE, ["list", COMPOUNDS]),
            (0x78, mapping((symbol("x-opt-crc"), integer("uint", 7)))),
        ],
    ]
    received = run(broker, "exchange_sections", address=address, messages=messages)
    # The one of higher priority may overtake the others.
    assert sorted(same(received), key=repr) == sorted(same(messages), key=repr)


def test_message_objects(broker: BrokerProcess, address: str) -> None:
    """What rhea's own message objects hold comes back; delivery-annotations end at the broker."""
    result = run(broker, "message_objects", address=address)
    assert set(result["outcomes"]) == {"accepted"}
    assert result["sent"][-1].pop("delivery_annotations") == {"x-opt-hop": 1}
    # The one of higher priority may overtake the others.
    pairs = [
        sorted(result[end], key=lambda made: repr(made["body"])) for end in ("sent", "received")
    ]
    for sent, received in zip(*pairs, strict=True):
        if sent["body"] == "properties":
            # Times come back as JavaScript dates.
            sent["absolute_expiry_time"] = "2100-01-01T00:00:00.000Z"
            sent["creation_time"] = "2025-01-01T00:00:00.123Z"
        if "ttl" in sent:
            assert 0 < received.pop("ttl") <= sent.pop("ttl")
        defaults = {"durable": False, "priority": 4, "first_acquirer": False, "delivery_count": 0}
        for field, default in defaults.items():
            if received.get(field) == default:
                sent.setdefault(field, default)
        assert received == sent


def test_other_message_format(broker: BrokerProcess, address: str) -> None:
    """Bytes in a format of their own are not the broker's to read (AMQP 1.0 §2.8.11)."""
    payload, number = "00ff" * 100, 0x80010000
    result = run(broker, "other_format", address=address, payload=payload, format=number)
    assert result == {"outcomes": ["accepted"], "payload": payload, "format": number}


def test_pipelined(broker: BrokerProcess, address: str) -> None:
    result = run(broker, "pipelined", address=address, count=5000)
    assert result == {"outcomes": ["accepted"], "in_order": True}


# -- settlement ----------------------------------------------------------------------------


def test_sent_settled(broker: BrokerProcess, address: str) -> None:
    result = run(broker, "sent_settled", address=address)
    assert result == {"received": [1, 2, 3], "states": [None] * 3, "mode": 1}


def test_received_settled(broker: BrokerProcess, address: str) -> None:
    result = run(broker, "received_settled", address=address)
    assert result == {"received": [1, 2], "settled": [True, True], "left": [3]}


OUTCOMES: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "accept": ("accept", None, {"body": "second"}),
    "release": ("release", None, {"body": "first", "left": ["second"]}),
    "reject": ("reject", {"condition": "amqp:decode-error"}, {"body": "second"}),
    "modify": ("modified", {}, {"body": "first", "left": ["second"]}),
    "modify, failed": (
        "modified",
        {"delivery_failed": True},
        {"body": "first", "delivery_count": 1, "left": ["second"]},
    ),
    "modify, annotated": (
        "modified",
        {"message_annotations": {"x-opt-why": "because"}},
        {"body": "first", "annotations": {"x-opt-why": "because"}, "left": ["second"]},
    ),
    "modify, undeliverable here": (
        "modified",
        {"undeliverable_here": True},
        {"body": "second", "left": ["first"]},
    ),
}


@pytest.mark.spec("3.4")
@pytest.mark.parametrize("name", OUTCOMES)
def test_outcomes(broker: BrokerProcess, address: str, name: str) -> None:
    """The next message after the outcome, accepted by nobody, is back in the queue at the end."""
    outcome, argument, expected = OUTCOMES[name]
    result = run(broker, "outcome", address=address, outcome=outcome, argument=argument)
    default = {"delivery_count": 0, "annotations": None}
    if expected["body"] == "first":
        left = ["first", *expected["left"]]
    else:
        left = [*expected.get("left", []), "second"]
    assert result == {**default, **expected, "left": left}


@pytest.mark.spec("2.6.12")
def test_receiver_that_settles_second(broker: BrokerProcess, address: str) -> None:
    result = run(broker, "settles_second", address=address)
    assert result == {"received": [1, 2, 3], "mode": 1, "left": []}


@pytest.mark.spec("2.6.12")
def test_sender_that_wants_to_settle_first(broker: BrokerProcess, address: str) -> None:
    result = run(broker, "sender_settles_first", address=address)
    assert result == {"settled_by_broker": True, "left": [1]}


def test_order_survives_outcomes_out_of_order(broker: BrokerProcess, address: str) -> None:
    actions = [(4, "release"), (1, "accept"), (3, "modified"), (0, "release"), (5, "accept")]
    left = run(broker, "out_of_order", address=address, actions=[*actions, (2, "reject")])
    assert left == [0, 3, 4]


def test_lost_connection_gives_back(broker: BrokerProcess, address: str) -> None:
    with (
        Relay(broker.port) as relay,
        Scenario(
            broker,
            "lost_connection",
            address=address,
            relay=relay.port,
            bodies=[1, 2, 3],
            count=2,
        ) as scenario,
    ):
        scenario.wait_for("taken")
        relay.cut()
        result = scenario.result()
    assert result == {"before": [1, 2], "after": [[1, 1], [2, 1], [3, 0]]}


# -- links ---------------------------------------------------------------------------------


def test_browse(broker: BrokerProcess, address: str) -> None:
    result = run(broker, "browse", address=address)
    assert result == {"mode": "copy", "seen": [1, 2, 3, 4], "left": [1, 2, 3, 4]}


def test_request_and_response(broker: BrokerProcess, address: str) -> None:
    result = run(broker, "request_response", address=address)
    words = [["one", "ONE"], ["two", "TWO"], ["three", "THREE"]]
    assert result == {"dynamic": True, "bodies": words}


def test_dynamic_node_ends_with_its_link(broker: BrokerProcess) -> None:
    result = run(broker, "dynamic_ends")
    assert result["body"] == "hello"
    assert result["error"]["condition"] == "amqp:resource-deleted"


@pytest.mark.spec("2.6.7")
def test_drain(broker: BrokerProcess, address: str) -> None:
    result = run(broker, "drain", address=address)
    assert result == {"empty": [], "limited": [1, 2], "waiting": 0, "left": [3, 4, 5]}


def test_many_sessions(broker: BrokerProcess, address: str) -> None:
    assert run(broker, "sessions", address=address, count=10) == list(range(10))


def test_competing_receivers_share(broker: BrokerProcess, address: str) -> None:
    shares = run(broker, "compete", address=address)
    assert sorted(body for share in shares for body in share) == list(range(12))
    assert all(share == sorted(share) for share in shares)


def test_anonymous_relay(broker: BrokerProcess, address: str) -> None:
    to = [f"{address}-a", None, f"{address}-b", "$nothing/here"]
    result = run(broker, "relay", address=address, to=to)
    assert "ANONYMOUS-RELAY" in result["capabilities"]
    assert result["received"] == [[0], [2]]
    accepted, nowhere, also_accepted, unknown = result["outcomes"]
    assert accepted == also_accepted == "accepted"
    assert nowhere["condition"] == unknown["condition"] == "amqp:not-found"


@pytest.mark.spec("2.6.3")
@pytest.mark.parametrize("direction", ["sender", "receiver"])
def test_refused_link(broker: BrokerProcess, direction: str) -> None:
    result = run(broker, "refused", direction=direction, terminus="$nothing/here")
    assert result["error"]["condition"] == "amqp:not-found"
    assert "$nothing/here" in result["error"]["description"]
    assert result["address"] is None


@pytest.mark.spec("2.6.3")
def test_refused_distribution_mode(broker: BrokerProcess, address: str) -> None:
    terminus = {"address": address, "distribution_mode": "scatter"}
    result = run(broker, "refused", direction="receiver", terminus=terminus)
    assert result["error"]["condition"] == "amqp:not-implemented"


def test_link_opened_again_and_again(broker: BrokerProcess, address: str) -> None:
    assert run(broker, "reopen", address=address, count=30) == list(range(30))


# -- connections -----------------------------------------------------------------------------


@pytest.mark.spec("5.3")
@pytest.mark.parametrize("way", WAYS_IN)
def test_ways_in(broker: BrokerProcess, address: str, way: str) -> None:
    result = run(broker, "come_in", address=address, options=WAYS_IN[way])
    assert result["body"] == "hello"
    assert result["used_sasl"] is (way != "no SASL")
    assert result["container"].startswith("ferrymq")


def test_known_user(guarded: BrokerProcess, address: str) -> None:
    options = {"username": "alice", "password": "open sesame"}
    assert run(guarded, "come_in", address=address, options=options)["body"] == "hello"


@pytest.mark.parametrize(
    "options",
    [
        {"username": "alice", "password": "wrong"},
        {"username": "bob", "password": "open sesame"},
        {"username": "anonymous"},
        {},
    ],
    ids=["wrong password", "unknown user", "ANONYMOUS", "no SASL"],
)
def test_unknown_clients_stay_outside(guarded: BrokerProcess, options: dict[str, Any]) -> None:
    events = run(guarded, "stay_out", options=options)
    assert "connection_open" not in events


@pytest.mark.spec("2.4.5")
def test_broker_keeps_a_silent_connection_alive(broker: BrokerProcess, address: str) -> None:
    body = run(broker, "broker_heartbeats", address=address, idle_time_out=300, count=4)
    assert body == "hello"


@pytest.mark.spec("2.4.5")
def test_client_keeps_a_silent_connection_alive(address: str) -> None:
    with BrokerProcess(IMPATIENT) as impatient:
        result = run(impatient, "client_heartbeats", address=address, count=5)
    assert result == {"idle_time_out": 500, "body": "hello"}


def test_sigterm_closes_connections() -> None:
    with BrokerProcess() as process, Scenario(process, "forced") as scenario:
        scenario.wait_for("ready")
        process.stop()
        (error,) = scenario.result()
    assert error["condition"] == "amqp:connection:forced"


@pytest.mark.parametrize("sudden", [True, False], ids=["killed", "stopped"])
def test_reconnecting(address: str, sudden: bool) -> None:
    """rhea finds a broker that was restarted, and its links work again."""
    with (
        BrokerProcess(IMPATIENT) as process,
        Scenario(process, "reconnecting", address=address) as scenario,
    ):
        scenario.wait_for("exchanged")
        if sudden:
            process.kill()
        else:
            process.stop()
        process.start()
        assert scenario.result() == ["before", "after"]


def test_at_least_once_over_a_lost_connection(broker: BrokerProcess, address: str) -> None:
    """Nothing that was not settled is forgotten, nothing that was settled is lost."""
    count = 300
    with (
        Relay(broker.port) as relay,
        Scenario(broker, "resend", address=address, relay=relay.port, count=count) as scenario,
    ):
        scenario.wait_for("half")
        relay.cut()
        assert scenario.result()["disconnections"] >= 1
    assert set(run(broker, "left", address=address)) == set(range(count))


def test_many_clients_at_once(broker: BrokerProcess, address: str) -> None:
    """Processes of their own, each with its own exchange."""
    results: list[Any] = []
    threads = [
        threading.Thread(
            target=lambda n=n: results.append(run(broker, "come_in", address=f"{address}-{n}"))
        )
        for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [result["body"] for result in results] == ["hello"] * 4
