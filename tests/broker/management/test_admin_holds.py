"""`ferrymq admin holds` and `release` as processes against a real broker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

import ferrymq
from tests.broker.management.test_admin import as_json, done, failed
from tests.broker.test_process import port_in, serve

# The command line is not compiled.
pytestmark = pytest.mark.once


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serve("--listen", "amqp://127.0.0.1:0") as (_, lines):
        yield f"amqp://127.0.0.1:{port_in(lines[0])}"


def hold(url: str, stream: str, holder: str, offsets: dict[int, int]) -> None:
    async def work() -> None:
        async with (
            ferrymq.connect(url) as connection,
            connection.management() as management,
        ):
            items = [{"partition": part, "offset": offset} for part, offset in offsets.items()]
            await management.request("HOLD", "stream", stream, {"holder": holder, "offsets": items})

    asyncio.run(work())


def test_holds_are_listed_and_released(url: str) -> None:
    done(url, "create", "stream", "orders", "partitions=2")
    done(url, "create", "stream", "wide", "partitions=12")
    done(url, "create", "stream", "free")
    hold(url, "orders", "archive", {1: 0})
    hold(url, "wide", "archive", dict.fromkeys(range(12), 0))
    header, _, *lines = done(url, "holds").splitlines()
    assert header.split() == ["stream", "holder", "since", "bytes", "offsets"]
    assert [line.split()[:2] for line in lines] == [["orders", "archive"], ["wide", "archive"]]
    today = datetime.now(UTC).date()
    assert abs((datetime.fromisoformat(lines[0].split()[2]).date() - today).days) <= 1
    assert lines[0].split()[3:] == ["0", "1:", "0"]
    assert lines[1].endswith("7: 0 and 4 more")
    (one,) = as_json(url, "holds", "orders")
    assert (one["stream"], one["holder"], one["offsets"]) == ("orders", "archive", [None, 0])
    assert as_json(url, "holds", "free") == []
    assert "use --yes" in failed(url, "release", "orders", "archive")
    told = done(url, "release", "orders", "archive", "--yes")
    assert told == "archive holds no records of orders any more\n"
    assert [one["stream"] for one in as_json(url, "holds")] == ["wide"]
    assert "'orders' has no hold 'archive'" in failed(url, "release", "orders", "archive", "--yes")
    assert "no stream 'nosuch'" in failed(url, "holds", "nosuch")
