"""`ferrymq admin leases` and `release-leases` as processes against a real broker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

import ferrymq
from ferrymq import Message
from tests.broker.management.test_admin import as_json, done, failed
from tests.broker.test_process import port_in, serve

# The command line is not compiled.
pytestmark = pytest.mark.once


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serve("--listen", "amqp://127.0.0.1:0") as (_, lines):
        yield f"amqp://127.0.0.1:{port_in(lines[0])}"


def lease(url: str, queue: str, holder: str, number: int, messages: int) -> None:
    """Send messages and lease them."""

    async def work() -> None:
        async with (
            ferrymq.connect(url) as connection,
            connection.sender(queue) as sender,
            connection.management() as management,
        ):
            await sender.send_many([Message(b"m") for _ in range(messages)])
            asked = {"holder": holder, "number": number, "messages": messages}
            await management.request("LEASE", "queue", queue, asked)

    asyncio.run(work())


def test_leases_are_listed_and_released(url: str) -> None:
    done(url, "create", "queue", "free")
    lease(url, "work", "spark-a", 7, 3)
    lease(url, "work", "spark-b", 1, 2)
    lease(url, "other", "spark-a", 2, 1)
    header, _, *lines = done(url, "leases").splitlines()
    assert header.split() == ["queue", "holder", "number", "messages", "bytes", "expiry"]
    assert sorted(line.split()[:4] for line in lines) == [
        ["other", "spark-a", "2", "1"],
        ["work", "spark-a", "7", "3"],
        ["work", "spark-b", "1", "2"],
    ]
    expiry = datetime.fromisoformat(lines[0].split()[5])
    assert 0 < (expiry - datetime.now(UTC)).total_seconds() <= 301
    first, second = as_json(url, "leases", "work")
    assert (first["queue"], first["holder"], first["number"]) == ("work", "spark-a", 7)
    assert second["messages"] == 2
    assert as_json(url, "leases", "free") == []
    assert "use --yes" in failed(url, "release-leases", "work", "spark-a")
    told = done(url, "release-leases", "work", "spark-a", "--yes")
    assert told == "1 leases with 3 messages are over\n"
    assert [one["holder"] for one in as_json(url, "leases", "work")] == ["spark-b"]
    ended = as_json(url, "release-leases", "work", "spark-b", "--yes")
    assert ended == {"queue": "work", "holder": "spark-b", "numbers": [1], "messages": 2}
    assert as_json(url, "leases", "work") == []
    assert "no queue 'nosuch'" in failed(url, "leases", "nosuch")
