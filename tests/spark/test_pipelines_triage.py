"""Dead letters: sorted as they died, and moved so that each is at one place, once."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrymq import Message, blocking
from pyspark_ferrymq.errors import AmqpOptionError, AmqpSourceError, AmqpWriteError
from pyspark_ferrymq.pipelines.move_messages import fingerprint, revived
from pyspark_ferrymq.pipelines.sections import Sections, annotated
from pyspark_ferrymq.pipelines.triage import TriageOptions, run
from pyspark_ferrymq.pipelines.triage_report import write_report
from pyspark_ferrymq.traffic import Traffic
from pyspark_ferrymq.traffic.run import run_producer, run_workers
from tests.interop.broker_process import BrokerProcess
from tests.spark.kit import Streams, take_all

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def kill_letters(broker: BrokerProcess, address: str, count: int) -> None:
    """Messages that a consumer rejects: even numbers for one reason, odd ones for another."""
    with Streams(broker) as streams, blocking.connect(broker.url) as connection:
        streams.ask("CREATE", "queue", f"{address}.dead")
        streams.ask("CREATE", "queue", address, dead_letter=f"{address}.dead")
        # Some of them alike, byte for byte.
        sender = connection.sender(address)
        sender.send_many([Message(b"%d" % (n // 3 * 3), durable=True) for n in range(count)])
        receiver = connection.receiver(address)
        for _ in range(count):
            delivery = receiver.receive(timeout=10)
            kind = "even" if int(delivery.message.body) % 2 == 0 else "odd"
            delivery.reject(f"test:{kind}", f"the number is {kind}")


def test_groups_are_those_of_the_ledger(
    spark: SparkSession, broker: BrokerProcess, address: str, tmp_path: Path
) -> None:
    traffic = Traffic(seed=11, count=1500, poison=0.1, prefix=address, streams=False)
    connection = {"url": broker.url}
    poison = asyncio.run(run_producer(connection, traffic)).addresses[f"{address}.parcels"].poison
    asyncio.run(run_workers(connection, f"{address}.parcels", idle=0.3))
    options = TriageOptions(connection=connection, queue=traffic.dead, samples=2)
    found = run(spark, options)
    groups = {(row["reason"], row["condition"]): row for row in found.groups}
    expected = {
        ("rejected", "shop:bad-json"): poison["bad-json"],
        ("rejected", "shop:missing-field"): poison["missing-field"],
        ("rejected", "shop:oversized"): poison["oversized"],
        ("delivery-limit", None): poison["unknown-schema"],
    }
    assert {key: row["count"] for key, row in groups.items()} == expected
    assert {row["source"] for row in found.groups} == {f"{address}.parcels"}
    assert {row["subject"] for row in found.groups} == {"parcel"}
    for row in found.groups:
        assert row["first"] <= row["samples"][0]["diedAt"] == row["last"]
        assert len(row["samples"]) == 2
        assert row["samples"][0]["messageId"].startswith("parcel-11-")
    malformed = groups["rejected", "shop:bad-json"]["samples"][0]
    assert malformed["description"] == "the body ends in the middle"
    assert malformed["text"].startswith('{"kind":"parcel"')
    assert sum(row["count"] for row in found.times) == found.count == poison.total()

    chosen = run(spark, replace(options, where="condition = 'shop:oversized' AND bytes > 32768"))
    assert chosen.count == poison["oversized"]
    page = tmp_path / "report.html"
    write_report(page, found, options)
    assert "the body ends in the middle" in page.read_text("utf-8")
    # Looking has taken nothing away.
    assert len(take_all(broker, traffic.dead)) == poison.total()


def test_what_is_chosen_goes_back_and_the_rest_stays(
    spark: SparkSession, broker: BrokerProcess, address: str
) -> None:
    kill_letters(broker, address, 450)
    numbers = Counter(str(n // 3 * 3) for n in range(450))
    even = Counter({n: count for n, count in numbers.items() if int(n) % 2 == 0})
    options = TriageOptions(
        connection={"url": broker.url},
        queue=f"{address}.dead",
        where="condition = 'test:even'",
        retry=True,
    )
    assert run(spark, replace(options, dry_run=True)).moved is None
    found = run(spark, options)
    assert found.moved is not None
    assert found.moved.targets == {address: even.total()}
    assert (found.moved.missing, found.count) == (0, even.total())
    back = take_all(broker, address)
    assert Counter(message.body.decode() for message in back) == even
    for message in back:
        assert (message.delivery_count, message.durable) == (0, True)
        # What it died of is told; where it has been is not held against it.
        annotations = message.message_annotations
        assert annotations["x-opt-deadletter-condition"] == "test:even"
        assert "x-opt-deadletter-path" not in annotations
    assert run(spark, options).count == 0
    rest = take_all(broker, f"{address}.dead")
    assert Counter(message.body.decode() for message in rest) == numbers - even
    # To have been held meanwhile counts as nothing.
    assert {message.delivery_count for message in rest} == {1}


def test_a_target_that_gets_full_gets_what_it_takes_and_nothing_is_lost(
    spark: SparkSession, broker: BrokerProcess, address: str
) -> None:
    kill_letters(broker, address, 500)
    target = f"{address}.later"
    options = TriageOptions(
        connection={"url": broker.url}, queue=f"{address}.dead", where="true", move_to=target
    )
    with pytest.raises(AmqpSourceError, match=r"nothing can be sent to '.*::no::such'"):
        run(spark, replace(options, move_to=f"{address}::no::such"))
    with Streams(broker) as streams:
        streams.ask("CREATE", "queue", target, max_length=250)
    with pytest.raises(AmqpWriteError, match="later' refuses a message"):
        run(spark, options)
    moved = take_all(broker, target)
    assert len(moved) == 200
    with Streams(broker) as streams:
        streams.ask("UPDATE", "queue", target, max_length=1000)
    assert run(spark, options).count == 300
    bodies = Counter(message.body for message in moved + take_all(broker, target))
    assert bodies == Counter(b"%d" % (n // 3 * 3) for n in range(500))


KILLED = """
import asyncio, os, sys
from collections import Counter
import ferrymq
from pyspark_ferrymq.pipelines.move_messages import fingerprint, move

async def main(url, queue):
    async with ferrymq.connect(url) as connection:
        chosen = Counter()
        browser = await connection.receiver(queue, mode="copy", credit=1000)
        while len(chosen) < 140:
            chosen[fingerprint((await browser.receive(timeout=10)).payload)] += 1
        for key in chosen:
            chosen[key] = 1000
        await move(connection, queue, chosen, None, lambda count: os._exit(9))

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.slow
def test_killed_in_the_middle_every_message_is_at_one_place(
    spark: SparkSession, broker: BrokerProcess, address: str
) -> None:
    kill_letters(broker, address, 420)
    dead = f"{address}.dead"
    command = [sys.executable, "-c", KILLED, broker.url, dead]
    assert subprocess.run(command, timeout=60, check=False).returncode == 9
    first = take_all(broker, address)
    assert 0 < len(first) < 420
    options = TriageOptions(connection={"url": broker.url}, queue=dead, where="true", retry=True)
    assert run(spark, options).count == 420 - len(first)
    bodies = Counter(message.body for message in first + take_all(broker, address))
    assert bodies == Counter(b"%d" % (n // 3 * 3) for n in range(420))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"retry": True}, "--where true for all"),
        ({"retry": True, "move_to": "x", "where": "true"}, "exclude each other"),
        ({"move_to": "dead", "where": "true"}, "dead letters itself"),
    ],
)
def test_what_contradicts_itself_is_refused(settings: dict[str, object], said: str) -> None:
    options = TriageOptions(connection={}, queue="dead", **settings)  # type: ignore[arg-type]
    with pytest.raises(AmqpOptionError, match=said):
        options.check()


messages = st.builds(
    Message,
    st.binary(max_size=40) | st.text(max_size=10) | st.integers(-5, 5),
    durable=st.booleans(),
    delivery_count=st.integers(0, 3),
    subject=st.none() | st.text(max_size=5),
    message_annotations=st.dictionaries(st.sampled_from(["x-a", "x-b"]), st.integers(0, 9)),
    application_properties=st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2),
)


@given(messages)
def test_only_what_may_be_changed_is_changed(message: Message) -> None:
    raw = message.encode()
    assert Message.decode(Sections.split(raw).join()) == message
    changed = annotated(raw, {"x-new": "y"})
    assert Sections.split(changed).bare == Sections.split(raw).bare
    assert raw.endswith(Sections.split(raw).bare)
    decoded = Message.decode(changed)
    assert decoded.message_annotations == {**message.message_annotations, "x-new": "y"}
    again = revived(raw)
    assert Message.decode(again).delivery_count == 0
    assert fingerprint(again) == fingerprint(raw) != fingerprint(changed)
