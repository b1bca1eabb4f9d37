"""rhea on nodes: the scenarios of rhea/nodes.js, judged."""

from __future__ import annotations

from typing import Any

import pytest

from tests.interop.broker_process import BrokerProcess
from tests.interop.relay import Relay
from tests.interop.rhea_client import Scenario, needs_rhea, run

pytestmark = [pytest.mark.interop, needs_rhea]

CONFIG = """
[[virtual-host]]
name = "tenant"
hostnames = ["tenant.example"]

[[queue]]
name = "dead"

[[queue]]
pattern = "mortal-*"
dead-letter = "dead"

[[queue]]
pattern = "narrow-*"
max-length = 2

[[queue]]
pattern = "dropping-*"
max-length = 2
overflow = "drop-head"

[[queue]]
pattern = "blocking-*"
max-length = 2
overflow = "block"

[[queue]]
pattern = "last-*"
last-value-key = "symbol"

[[queue]]
pattern = "once-*"
duplicate-window = "10m"

[[topic]]
pattern = "topic-*"

[[stream]]
pattern = "stream-*"

[[queue]]
name = "one"

[[queue]]
name = "two"

[[queue]]
name = "odd"

[[exchange]]
name = "direct"
[[exchange.binding]]
key = "1"
to = "one"
[[exchange.binding]]
key = "2"
to = "two"

[[exchange]]
name = "words"
routing = "topic"
alternate = "odd"
[[exchange.binding]]
key = "a.*"
to = "one"
[[exchange.binding]]
key = "#.b"
to = "two"

[[exchange]]
name = "headers"
routing = "headers"
[[exchange.binding]]
to = "one"
arguments = { colour = "red" }

[[redirect]]
name = "moved"
host = "10.0.0.1"
hostname = "host.example"
port = 5673
address = "there"

[[alias]]
name = "uno"
to = "one"
"""


# -- queues ---------------------------------------------------------------------------------

DEFAULTS: dict[str, tuple[str | None, dict[str, Any], int | None, list[Any]]] = {
    "none": (None, {}, 0x26, [["x", 0, None]]),
    "accepted": ("accepted", {}, 0x24, []),
    "released": ("released", {}, 0x26, [["x", 0, None]]),
    "modified": (
        "modified",
        {"delivery_failed": True, "message_annotations": {"x-opt-by": "default"}},
        0x27,
        [["x", 1, {"x-opt-by": "default"}]],
    ),
    "rejected": ("rejected", {}, 0x25, []),
}


@pytest.mark.spec("3.5.3")
@pytest.mark.parametrize("end", ["settle", "close", "detach"])
@pytest.mark.parametrize("name", DEFAULTS)
def test_a_link_that_goes_settles_by_its_default_outcome(
    broker: BrokerProcess, address: str, name: str, end: str
) -> None:
    outcome, fields, code, left = DEFAULTS[name]
    result = run(
        broker,
        "default_outcome",
        address=f"mortal-{address}",
        outcome=outcome,
        fields=fields,
        end=end,
        dead="dead",
    )
    dead = ["x"] if name == "rejected" else []
    assert result == {"told": code, "left": left, "dead": dead}


@pytest.mark.spec("3.5.3")
@pytest.mark.parametrize("name", DEFAULTS)
def test_a_lost_link_settles_by_its_default_outcome(
    broker: BrokerProcess, address: str, name: str
) -> None:
    """Without one, the delivery counts as failed: the client may have seen the message."""
    outcome, fields, code, left = DEFAULTS[name]
    with (
        Relay(broker.port) as relay,
        Scenario(
            broker,
            "default_outcome",
            address=f"mortal-{address}",
            relay=relay.port,
            outcome=outcome,
            fields=fields,
            end="lost",
            dead="dead",
        ) as scenario,
    ):
        scenario.wait_for("taken")
        relay.cut()
        result = scenario.result()
    dead = ["x"] if name == "rejected" else []
    left = [["x", 1, None]] if name == "none" else left
    assert result == {"told": code, "left": left, "dead": dead}


def test_an_outcome_that_was_not_agreed(broker: BrokerProcess, address: str) -> None:
    result = run(broker, "not_agreed", address=address)
    assert result["outcomes"] in ("amqp:accepted:list", ["amqp:accepted:list"])
    assert result["error"]["condition"] == "amqp:not-allowed"
    assert result["closed"] is True
    assert result["left"] == ["x"]


def test_consumer_priority(broker: BrokerProcess, address: str) -> None:
    properties = [{"priority": -1}, {}, {"x-priority": 5}]
    result = run(broker, "consumers", address=address, properties=properties, credit=2)
    assert result["shares"] == [[4, 5], [2, 3], [0, 1]]
    assert result["told"] == [{"priority": -1}, None, {"x-priority": 5}]


def test_a_full_queue_rejects(broker: BrokerProcess, address: str) -> None:
    queue = f"narrow-{address}"
    result = run(broker, "publish_and_look", address=queue, messages=[1, 2, 3], queues=[queue])
    assert result["outcomes"][:2] == ["accepted", "accepted"]
    assert result["outcomes"][2]["condition"] == "amqp:resource-limit-exceeded"
    assert result["left"] == {queue: [1, 2]}


def test_a_full_queue_drops_its_head(broker: BrokerProcess, address: str) -> None:
    queue = f"dropping-{address}"
    result = run(broker, "publish_and_look", address=queue, messages=[1, 2, 3], queues=[queue])
    assert result == {"outcomes": ["accepted"] * 3, "left": {queue: [2, 3]}}


def test_a_full_queue_gives_no_credit(broker: BrokerProcess, address: str) -> None:
    assert run(broker, "blocked", address=f"blocking-{address}-x") == [False, 0, True]


def test_priorities_last_values_and_duplicates(broker: BrokerProcess, address: str) -> None:
    levels = [{"body": level, "priority": level} for level in (1, 9, 4, 0)]
    values = [
        {"body": n, "application_properties": {"symbol": key}} for n, key in enumerate("abab")
    ]
    ids = [{"body": n, "message_id": id} for n, id in enumerate(["a", "b", "a", 7, 7])]
    for queue, messages, left in (
        (address, levels, [9, 4, 1, 0]),
        (f"last-{address}", values, [2, 3]),
        (f"once-{address}", ids, [0, 1, 3]),
    ):
        result = run(broker, "publish_and_look", address=queue, messages=messages, queues=[queue])
        assert result == {"outcomes": ["accepted"] * len(messages), "left": {queue: left}}


def test_ttl_ends_in_the_dead_letters(broker: BrokerProcess, address: str) -> None:
    queue = f"mortal-{address}"
    messages = [{"body": ttl, "ttl": ttl} for ttl in (60, 30)]
    result = run(broker, "wait_for", queue="dead", address=queue, messages=messages, count=2)
    assert {letter["body"] for letter in result} == {30, 60}
    for letter in result:
        annotations = letter["annotations"]
        ttl = letter["body"]
        assert letter["after"] >= ttl
        assert annotations["x-opt-deadletter-reason"] == "expired"
        assert annotations["x-opt-deadletter-source"] == queue
        assert annotations["x-opt-original-ttl"] == ttl


def test_scheduled_messages_come_in_the_order_of_their_times(
    broker: BrokerProcess, address: str
) -> None:
    """JavaScript's numbers come as int, long or double: whole ones will do."""
    delays = (600, 200, 400)
    messages = [
        {"body": delay, "message_annotations": {"x-opt-delivery-delay": delay}} for delay in delays
    ]
    result = run(broker, "wait_for", queue=address, address=address, messages=messages, count=3)
    assert [message["body"] for message in result] == sorted(delays)
    assert all(message["after"] >= message["body"] for message in result)


# -- topics, streams, exchanges ---------------------------------------------------------------


def test_a_durable_subscription(broker: BrokerProcess, address: str) -> None:
    result = run(broker, "durable", address=f"topic-{address}", fence=f"{address}-fence")
    assert result["seen"] == [1, 2, 3, 5]
    assert result["error"]["condition"] == "amqp:link:stolen"


def test_a_durable_subscription_and_rheas_own_reconnecting(
    broker: BrokerProcess, address: str
) -> None:
    with (
        Relay(broker.port) as relay,
        Scenario(
            broker,
            "reconnecting_subscriber",
            address=f"topic-{address}",
            fence=f"{address}-fence",
            relay=relay.port,
        ) as scenario,
    ):
        scenario.wait_for("taken")
        relay.cut()
        assert scenario.result() == [[2, 1], [3, 0]]


def test_a_shared_subscription(broker: BrokerProcess, address: str) -> None:
    result = run(
        broker, "shared", address=f"topic-{address}", group=address, fence=f"{address}-fence"
    )
    assert result["bodies"] == ["a", "b"]
    assert "SHARED-SUBS" in result["connection"]
    assert result["offered"] in ("SHARED-SUBS", ["SHARED-SUBS"])
    assert set(result["capabilities"]) == {"topic", "shared", "global"}


def test_positions_in_a_stream(broker: BrokerProcess, address: str) -> None:
    result = run(
        broker,
        "read_stream",
        address=f"stream-{address}",
        messages=["a", "b", "c"],
        positions=["first", "last", "next", 1],
    )
    records = [[0, "a"], [1, "b"], [2, "c"]]
    assert result == [records, records[2:], [], records[1:]]


@pytest.mark.parametrize(
    ("exchange", "messages", "outcomes", "left"),
    [
        (
            "direct",
            [{"body": key, "subject": key} for key in "123"],
            ["accepted", "accepted", "released"],
            {"one": ["1"], "two": ["2"]},
        ),
        (
            "words",
            [{"body": key, "subject": key} for key in ("a.b", "x.y.b", "c")],
            ["accepted"] * 3,
            {"one": ["a.b"], "two": ["a.b", "x.y.b"], "odd": ["c"]},
        ),
        (
            "headers",
            [
                {"body": colour, "application_properties": {"colour": colour}}
                for colour in ("red", "blue")
            ],
            ["accepted", "released"],
            {"one": ["red"]},
        ),
        ("direct::1", ["x"], ["accepted"], {"one": ["x"]}),
        ("uno", ["alias"], ["accepted"], {"one": ["alias"]}),
    ],
)
def test_exchanges_and_aliases(
    broker: BrokerProcess, exchange: str, messages: Any, outcomes: Any, left: Any
) -> None:
    result = run(broker, "publish_and_look", address=exchange, messages=messages, queues=list(left))
    assert result == {"outcomes": outcomes, "left": left}


# -- links ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "ends", "there"),
    [(0x2B, True, False), (0x2C, False, False), (0x2D, False, True), (0x2E, False, True)],
    ids=["close", "no links", "no messages", "no links or messages"],
)
def test_lifetimes(broker: BrokerProcess, address: str, code: int, ends: bool, there: bool) -> None:
    result = run(broker, "lifetime", code=code, ends=ends, fence=address)
    assert result["kept"] == code
    assert result["error"] == ("amqp:resource-deleted" if ends else None)
    assert result["there"] == ("there" if there else "amqp:not-found")


def test_a_filter_that_is_not_known_is_not_promised(broker: BrokerProcess, address: str) -> None:
    assert run(broker, "filters", address=address) == {"names": ["jms-selector"], "body": "red"}


def test_capabilities_that_are_desired(broker: BrokerProcess, address: str) -> None:
    """None is a condition; what is offered is what the link has."""
    desired = ["SHARED-SUBS", "AMQP_FILTEX_SQL_V1_0", "DELAYED_DELIVERY", "example:nothing"]
    topic, stream = f"topic-{address}", f"stream-{address}"
    result = run(broker, "offered", addresses=[address, topic, stream], desired=desired)
    assert result == {
        address: [["AMQP_FILTEX_SQL_V1_0"], ["DELAYED_DELIVERY"]],
        topic: [["AMQP_FILTEX_SQL_V1_0", "SHARED-SUBS"], ["DELAYED_DELIVERY"]],
        stream: [["AMQP_FILTEX_SQL_V1_0"], []],
    }


def test_a_redirect(broker: BrokerProcess) -> None:
    result = run(broker, "redirected", address="moved")
    assert result["condition"] == "amqp:link:redirect"
    assert result["info"] == {
        "network-host": "10.0.0.1",
        "hostname": "host.example",
        "port": 5673,
        "address": "there",
    }


@pytest.mark.parametrize("paired", [False, True], ids=["dynamic queue", "pair"])
def test_management(broker: BrokerProcess, address: str, paired: bool) -> None:
    requests = [["CREATE", {"max-length": 3}], ["READ", {}], ["DELETE", {}], ["UPDATE", {}]]
    result = run(broker, "manage", entity=address, requests=requests, paired=paired)
    assert result == [
        ["CREATE", 201, 3],
        ["READ", 200, 3],
        ["DELETE", 204, None],
        ["UPDATE", 404, None],
    ]


def test_virtual_hosts(broker: BrokerProcess, address: str) -> None:
    for hostname, left in (
        ("vhost:tenant", []),
        ("elsewhere.example", []),
        ("Tenant.Example", ["vhost:tenant"]),
        ("vhost:default", ["elsewhere.example"]),
    ):
        assert run(broker, "host", address=address, hostname=hostname) == left
    error = run(broker, "no_host", hostname="vhost:stranger")
    assert error["condition"] == "amqp:not-found"
