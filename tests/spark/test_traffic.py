"""The traffic that pipelines are tried on: the same for the same seed, and odd in known ways."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import pytest

import ferrymq
from ferrymq import Message, blocking
from ferrymq.engine.pairing import LINK_PAIR
from pyspark_ferrymq.errors import AmqpSourceError
from pyspark_ferrymq.traffic import Ledger, Traffic
from pyspark_ferrymq.traffic.arrival_times import DAY, intensity
from pyspark_ferrymq.traffic.bodies import FIELDS, LARGEST, POISON
from pyspark_ferrymq.traffic.message_faults import judge
from pyspark_ferrymq.traffic.producer import message_of
from pyspark_ferrymq.traffic.run import run_producer, run_workers
from pyspark_ferrymq.traffic.scenario import TrafficEvent
from tests.interop.broker_process import BrokerProcess

MANY = Traffic(seed=5, count=6000)


@pytest.fixture(scope="module")
def events() -> list[TrafficEvent]:
    return list(MANY.events())


def ledger_of(traffic: Traffic) -> Ledger:
    ledger = Ledger()
    for event in traffic.events():
        ledger.enter(traffic.address(event.place), event)
    return ledger


def test_the_same_settings_give_the_same_messages_and_others_do_not() -> None:
    small = replace(MANY, count=500)
    digest = ledger_of(small).digest
    # Written down: what was made up once is made up again by every later version.
    assert digest == "e1ff819d2d9122e952f0aa939ec4d37bca2afa4ff307e384d638a8af722b6365"
    assert ledger_of(small).digest == digest
    assert ledger_of(replace(small, seed=6)).digest != digest


def test_keys_are_skewed(events: list[TrafficEvent]) -> None:
    orders = Counter(event.key for event in events if event.place.kind == "order")
    first, *rest = [count for _, count in orders.most_common()]
    assert first > 10 * rest[len(rest) // 2]
    assert len(orders) > 300


def test_sizes_are_around_a_kilobyte_and_not_all_alike(events: list[TrafficEvent]) -> None:
    sizes = sorted(len(event.body) for event in events if event.poison is None)
    assert 700 < sizes[len(sizes) // 2] < 1100
    assert sizes[len(sizes) * 95 // 100] > 1.7 * sizes[len(sizes) // 2]


def test_the_day_has_a_rhythm_and_bursts(events: list[TrafficEvent]) -> None:
    assert sum(intensity(60.0 * minute) for minute in range(1440)) / 1440 == pytest.approx(1, 0.05)
    hours = Counter(int(event.at // 3600) for event in events if event.at < DAY)
    night = sum(hours[hour] for hour in (1, 2, 3, 4))
    noon = sum(hours[hour] for hour in (10, 11, 12, 13))
    assert noon > 2.5 * night
    minutes = Counter(int(event.at // 300) for event in events)
    usual = sorted(minutes.values())[len(minutes) // 2]
    assert max(minutes.values()) > 2.5 * usual


def test_what_is_late_is_known_by_its_delay(events: list[TrafficEvent]) -> None:
    assert {event.late for event in events} == {False, True}
    # Late messages are more than two minutes on their way; the others are far from one.
    assert all(event.late == (event.delay > 60_000) for event in events)


def test_what_comes_twice_is_the_same_message(events: list[TrafficEvent]) -> None:
    seen: dict[str, bytes] = {}
    twice = 0
    for event in events:
        assert event.duplicate == (event.message_id in seen)
        if event.duplicate:
            assert seen[event.message_id] == event.body
            twice += 1
        seen[event.message_id] = event.body
    assert twice > 20


def test_workers_find_every_poison_and_nothing_else(events: list[TrafficEvent]) -> None:
    assert {event.poison for event in events} == {None, *POISON}
    for event in events:
        fault = judge(message_of(event, 10**12))
        if event.poison is None:
            assert fault is None
            assert json.loads(event.body).keys() >= set(FIELDS[event.place.kind])
        else:
            assert fault is not None
            expected = {"unknown-schema": None}.get(event.poison, f"shop:{event.poison}")
            assert fault.condition == expected
            assert (len(event.body) > LARGEST) == (event.poison == "oversized")


@pytest.mark.parametrize(
    "settings",
    [{"count": 0}, {"rate": 0.0}, {"speed": -1.0}, {"late": 0.6}, {"streams": False}],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ValueError):
        Traffic(**{"queues": False, **settings})  # type: ignore[arg-type]


def test_what_the_broker_has_is_what_the_ledger_says(broker: BrokerProcess, address: str) -> None:
    traffic = replace(MANY, count=1500, prefix=address, poison=0.05)
    options = {"url": broker.url}
    told: list[int] = []
    ledger = asyncio.run(run_producer(options, traffic, True, told.append))
    assert ledger.digest == ledger_of(traffic).digest
    assert sum(told) == 1500 == ledger.messages
    with blocking.connect(broker.url) as connection:
        stream = f"{address}.payments"
        counted = ledger.addresses[stream]
        with connection.receiver(stream, start="first") as receiver:
            found = [receiver.receive(timeout=5).message for _ in range(counted.messages)]
    assert sum(len(message.body) for message in found) == counted.bytes
    assert {message.group_id for message in found} == counted.keys
    assert len({message.message_id for message in found}) == counted.messages - counted.duplicates

    shift = asyncio.run(run_workers(options, f"{address}.parcels", idle=0.3))
    poison = ledger.addresses[f"{address}.parcels"].poison
    rejected = {name: count for name, count in poison.items() if name != "unknown-schema"}
    assert shift.rejected == {f"shop:{name}": count for name, count in rejected.items()}
    assert shift.done + poison.total() == ledger.addresses[f"{address}.parcels"].messages
    dead_letters = f"{address}.parcels.dead"
    with (
        blocking.connect(broker.url) as connection,
        connection.receiver(dead_letters) as receiver,
    ):
        dead = []
        for _ in range(poison.total()):
            with receiver.receive(timeout=5) as delivery:
                dead.append(delivery.message)
    reasons = Counter(message.message_annotations["x-opt-deadletter-reason"] for message in dead)
    assert reasons == {
        "rejected": sum(rejected.values()), "delivery-limit": poison["unknown-schema"]
    }  # fmt: skip


def test_a_rate_is_kept(broker: BrokerProcess, address: str) -> None:
    traffic = Traffic(count=60, rate=200.0, speed=1440.0, prefix=address, queues=False)
    events = list(traffic.events())
    span = (events[-1].at - events[0].at) / traffic.speed

    async def timed() -> float:
        clock = asyncio.get_running_loop().time
        begun = clock()
        await run_producer({"url": broker.url}, traffic)
        return clock() - begun

    assert asyncio.run(timed()) >= span > 0.1


def test_who_may_not_make_nodes_is_told_what_would() -> None:
    config = """
    [[rule]]
    who = "*"
    may = ["send", "receive"]
    where = "*"
    """
    with BrokerProcess(config) as process, pytest.raises(AmqpSourceError) as caught:
        asyncio.run(run_producer({"url": process.url}, Traffic(count=1)))
    assert "ferrymq admin create stream demo.orders partitions=4" in str(caught.value)


def test_nothing_is_made_where_nothing_is_to_be_made(broker: BrokerProcess, address: str) -> None:
    traffic = Traffic(count=20, prefix=address)
    names = [traffic.address(place) for place in traffic.places]
    options = {"url": broker.url}

    async def nodes() -> set[object]:
        found: set[object] = set()
        async with (
            ferrymq.connect(broker.url, desired_capabilities=[LINK_PAIR]) as connection,
            connection.pair("$management") as pair,
        ):
            for kind in ("queue", "stream"):
                asked: dict[str, object] = {
                    "operation": "QUERY", "entityType": f"org.ferrymq.{kind}"
                }  # fmt: skip
                answer = await pair.request(Message(application_properties=asked), timeout=20)
                assert isinstance(answer.body, dict)
                found |= {row[0] for row in answer.body["results"]}
        return found

    before = asyncio.run(nodes())
    with pytest.raises(AmqpSourceError, match=f"there is no '{names[0]}'") as caught:
        asyncio.run(run_producer(options, traffic, create=False))
    assert f"ferrymq admin create stream {names[0]}" in str(caught.value)
    assert asyncio.run(nodes()) == before
    # What is there is taken as it is.
    made = asyncio.run(run_producer(options, traffic))
    assert set(names) <= asyncio.run(nodes())
    assert asyncio.run(run_producer(options, traffic, create=False)).digest == made.digest


def test_the_command_prints_the_ledger(broker: BrokerProcess, address: str) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "ferrymq_broker", "pipeline", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    common = ("--url", broker.url, "--count", "300", "--seed", "9", "--prefix", address)
    done = run("produce", *common, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    printed = json.loads(done.stdout)
    assert printed["digest"] == ledger_of(Traffic(seed=9, count=300, prefix=address)).digest
    assert printed["messages"] == 300
    done = run("work", f"{address}.parcels", "--url", broker.url, "--idle", "0.3", "--json")
    assert done.returncode == 0
    parcels = printed["addresses"][f"{address}.parcels"]
    assert json.loads(done.stdout)["done"] == parcels["messages"] - sum(parcels["poison"].values())

    done = run("produce", "--url", "amqp://127.0.0.1:1", "--count", "1")
    assert done.returncode == 1
    assert done.stderr.startswith("ferrymq: ") and done.stderr.count("\n") == 1


def test_what_is_not_accepted_ends_it() -> None:
    config = """
    [[queue]]
    name = "demo.parcels"
    max-length = 3
    """
    traffic = Traffic(count=10, streams=False)
    with BrokerProcess(config) as process, pytest.raises(ferrymq.DeliveryError):
        asyncio.run(run_producer({"url": process.url}, traffic))
