"""Durations of the public API: seconds or timedeltas, in every call and option."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import ferrymq
from ferrymq import Message, ReconnectPolicy, blocking
from ferrymq.aio.termini import receiver_source, sender_target
from ferrymq.durations import check_duration, whole_seconds
from ferrymq.options import ConnectionOptions, ReceiverOptions, SenderOptions
from ferrymq_broker.config import Config
from ferrymq_broker.server import BrokerServer
from ferrymq_types.messaging import Header

SOON = timedelta(milliseconds=50)


@pytest.fixture
async def broker() -> AsyncIterator[BrokerServer]:
    config = Config.model_validate(
        {"listener": [{"url": "amqp://127.0.0.1:0"}], "queue": [{"name": "orders"}]}
    )
    async with BrokerServer(config) as server:
        yield server


@pytest.mark.parametrize(
    ("given", "sent", "read"),
    [
        (60, 60_000, 60.0),
        (1.5, 1500, 1.5),
        (timedelta(minutes=1, milliseconds=1), 60_001, 60.001),
        (0, 0, 0.0),
        # A lifetime above 0 is not rounded to nothing.
        (0.0001, 1, 0.001),
        (1.1, 1100, 1.1),
        (4294967.295, 0xFFFFFFFF, 4294967.295),
        (None, None, None),
    ],
)
def test_a_ttl_is_in_seconds_and_travels_in_milliseconds(
    given: float | timedelta | None, sent: int | None, read: float | None
) -> None:
    message = Message(b"", ttl=given, durable=True)
    assert message.header == Header(durable=True, ttl=sent)
    assert message.ttl == read
    later = Message(b"", durable=True)
    later.ttl = given
    assert later == message
    assert Message.decode(message.encode()).ttl == read


@pytest.mark.parametrize("wrong", [-1, timedelta(seconds=-1), float("nan"), 4294968, float("inf")])
def test_a_ttl_that_is_no_lifetime(wrong: Any) -> None:
    with pytest.raises(ValueError, match="ttl "):
        Message(b"", ttl=wrong)
    message = Message(b"")
    with pytest.raises(ValueError, match="ttl "):
        message.ttl = wrong
    assert message.ttl is None


def test_every_32_bit_ttl_is_read_and_written_without_a_change() -> None:
    for ttl in (*range(5000), *range(0xFFFFFFFF - 5000, 0xFFFFFFFF + 1)):
        message = Message(b"")
        message.header = Header(ttl=ttl)
        message.ttl = message.ttl
        assert message.header.ttl == ttl


def test_moments_are_milliseconds_or_aware_datetimes() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 678_900, UTC)
    message = Message(b"", absolute_expiry_time=moment, creation_time=moment)
    assert message.absolute_expiry_time == message.creation_time == 1_767_323_045_678
    message.creation_time = moment + timedelta(seconds=1)
    assert message.creation_time == 1_767_323_046_678
    message.absolute_expiry_time = 5
    assert Message.decode(message.encode()).absolute_expiry_time == 5
    with pytest.raises(ValueError, match="time zone"):
        Message(b"", creation_time=moment.replace(tzinfo=None))


def test_a_value_that_is_no_duration_is_named() -> None:
    with pytest.raises(TypeError, match="timeout takes seconds or a timedelta, not str"):
        check_duration("5", "timeout")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="close_timeout takes seconds or a timedelta, not list"):
        ferrymq.connect(close_timeout=[])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="timeout -1 is no time: give seconds from 0 on, or None"):
        ConnectionOptions(timeout=-1)


def test_an_expiry_timeout_is_rounded_up_to_whole_seconds() -> None:
    assert [whole_seconds(t, "t") for t in (0, 0.1, 1, timedelta(seconds=1.5))] == [0, 1, 1, 2]
    for options in (SenderOptions, ReceiverOptions):
        with pytest.raises(ValueError, match="expiry_timeout"):
            options(expiry_timeout=-1)
        with pytest.raises(ValueError, match="expiry_timeout"):
            options(expiry_timeout=timedelta(days=365 * 200))
    source = receiver_source("q", ReceiverOptions(expiry_timeout=timedelta(seconds=0.5)))
    target = sender_target("q", SenderOptions(expiry_timeout=1.5))
    assert (source.timeout, target.timeout) == (1, 2)


def test_the_pauses_of_a_policy() -> None:
    policy = ReconnectPolicy(
        initial=timedelta(seconds=1), maximum=timedelta(seconds=3), attempts=3, random=lambda: 1.0
    )
    assert list(policy.pauses()) == [1, 2, 3]


async def test_every_call_of_the_asyncio_client_takes_a_timedelta(broker: BrokerServer) -> None:
    minute = timedelta(minutes=1)
    async with ferrymq.connect(
        broker.url, timeout=minute, close_timeout=minute, idle_time_out=minute, container_id="me"
    ) as connection:
        async with connection.session(timeout=minute) as session:
            await session.close(timeout=minute)
        sender = await connection.sender("orders", timeout=minute)
        await sender.ready(timeout=minute)
        await sender.send(Message(b"", ttl=minute), timeout=minute)
        await sender.send_many([Message(b"")], timeout=minute)
        await sender.send_encoded([Message(b"").encode()], timeout=minute)
        receiver = await connection.receiver(
            "orders", name="n", expiry_timeout=timedelta(seconds=0.5), timeout=minute
        )
        await (await receiver.receive(timeout=minute)).accept(timeout=minute)
        [delivery] = await receiver.receive_many(1, timeout=minute)
        await delivery.release(timeout=minute)
        async with connection.transaction(timeout=minute) as txn:
            await txn.send(sender, Message(b""), timeout=minute)
            await txn.commit(timeout=minute)
        await receiver.drain(timeout=minute)
        await receiver.close(timeout=minute)
        async with connection.management(timeout=minute) as management:
            await management.purge("queue", "orders", timeout=minute)
        empty = await connection.receiver("orders")
        started = asyncio.get_running_loop().time()
        with pytest.raises(TimeoutError):
            await empty.receive(timeout=SOON)
        assert asyncio.get_running_loop().time() - started < 10
        with pytest.raises(TimeoutError):
            await connection.wait_closed(timeout=SOON)
        with pytest.raises(TypeError, match="timeout takes seconds or a timedelta, not str"):
            await empty.receive(timeout="5")  # type: ignore[arg-type]
        await connection.close(timeout=minute)


async def test_every_call_of_the_blocking_client_takes_a_timedelta(broker: BrokerServer) -> None:
    def run() -> None:
        minute = timedelta(minutes=1)
        with blocking.connect(broker.url, timeout=minute, idle_time_out=minute) as connection:
            sender = connection.sender("orders", timeout=minute)
            sender.send(Message(b"", ttl=minute), timeout=minute)
            receiver = connection.receiver("orders", timeout=minute)
            received = receiver.receive(timeout=minute)
            assert received.message.ttl is not None and 30 < received.message.ttl <= 60
            received.accept(timeout=minute)
            with pytest.raises(TimeoutError):
                receiver.receive(timeout=SOON)
            connection.close(timeout=minute)

    await asyncio.to_thread(run)
