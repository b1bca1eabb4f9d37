"""Which streams are captured, as settings and streams change; and what there is to see of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import aiohttp
import pytest

import ferrymq
from ferrymq import Message
from ferrymq.capture import CaptureName, LocalPlace, claim, coverage
from ferrymq.capture.place import leftovers_in, names_in
from ferrymq_broker.capture.frames import OPEN, frame
from ferrymq_broker.capture.options import HOLDER, CaptureOptions
from ferrymq_broker.capture.process import WriterProcess
from ferrymq_broker.config import Config, load_config
from ferrymq_broker.nodes.streams.stream import Stream
from ferrymq_broker.server.server import BrokerServer

CONFIG = """
[[listener]]
url = "amqp://127.0.0.1:0"

[store]
path = "{path}/data"
segment-bytes = "256KiB"

[capture]
directory = "{path}/capture"
max-records = 10
max-age = "100ms"

[http]
url = "http://127.0.0.1:0"

[[stream]]
name = "orders"
capture = true

[[stream]]
name = "plain"

[[stream]]
pattern = "log.*"
capture = true

[[virtual-host]]
name = "tenant"

[[virtual-host.stream]]
name = "orders"
capture = true
"""


def config_of(path: Path, text: str = CONFIG) -> Config:
    """The configuration of this text."""
    file = path / "ferrymq.toml"
    file.write_text(text.format(path=path))
    return load_config(file)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[BrokerServer]:
    """A broker that captures."""
    async with BrokerServer(config_of(tmp_path)) as running:
        yield running


async def publish(
    server: BrokerServer, address: str, count: int, hostname: str | None = None
) -> None:
    async with (
        ferrymq.connect(server.url, hostname=hostname) as connection,
        connection.sender(address) as sender,
    ):
        for _ in range(count):
            await sender.send(Message(b"x"))


def files_of(path: Path, folder: str) -> list[CaptureName]:
    return sorted(names_in(LocalPlace(path / "capture" / folder)))


def covered(path: Path, folder: str) -> list[tuple[int, int]]:
    """The offsets that the files of partition 0 have, from and to before, however they are cut."""
    return [(each.first, each.next) for each in coverage(files_of(path, folder))[0].ranges]


async def until(what: Callable[[], bool]) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + 30
    while not what():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


def records(path: Path, folder: str) -> int:
    return sum(each.next - each.first for each in files_of(path, folder))


def held(server: BrokerServer, address: str) -> dict[int, int] | None:
    """The offsets that capture holds of a stream."""
    stream = server.broker.default.nodes[address]
    assert isinstance(stream, Stream)
    hold = stream.holds.find(HOLDER)
    return None if hold is None else hold.offsets


async def test_declared_streams_and_those_of_patterns_in_all_virtual_hosts(
    server: BrokerServer, tmp_path: Path
) -> None:
    await publish(server, "orders", 25)
    await publish(server, "plain", 5)
    await publish(server, "log.a/b", 5)
    await publish(server, "orders", 7, "vhost:tenant")
    await until(lambda: records(tmp_path, "orders") == 25)
    await until(lambda: records(tmp_path, "log.a%2Fb") == 5)
    await until(lambda: records(tmp_path, "@tenant/orders") == 7)
    assert not (tmp_path / "capture" / "plain").exists()
    assert len(files_of(tmp_path, "orders")) >= 3
    await until(lambda: held(server, "orders") == {0: 25})
    assert held(server, "plain") is None


async def test_what_changes_while_it_runs(server: BrokerServer, tmp_path: Path) -> None:
    async with (
        ferrymq.connect(server.url) as connection,
        connection.management() as management,
    ):
        await publish(server, "plain", 5)
        # From now on, and what there is.
        assert (await management.update("stream", "plain", {"capture": True}))["capture"] is True
        await until(lambda: records(tmp_path, "plain") == 5)
        # More partitions.
        await management.update("stream", "plain", {"partitions": 3})
        await publish(server, "plain", 30)
        await until(lambda: records(tmp_path, "plain") == 35)
        assert sorted(coverage(files_of(tmp_path, "plain"))) == [0, 1, 2]
        # What is purged is not missed, and what comes then is there.
        await management.purge("stream", "orders")
        await publish(server, "orders", 3)
        await until(lambda: records(tmp_path, "orders") == 3)
        await management.purge("stream", "orders")
        await publish(server, "orders", 3)
        await until(lambda: records(tmp_path, "orders") == 6)
        # No more.
        await management.update("stream", "plain", {"capture": False})
        await until(lambda: held(server, "plain") is None)
        await publish(server, "plain", 5)
        await management.delete("stream", "orders")
        await publish(server, "log.last", 5)
        await until(lambda: records(tmp_path, "log.last") == 5)
        assert records(tmp_path, "plain") == 35


async def test_what_was_never_captured_is_not_told_as_missing(
    server: BrokerServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Records that came while nothing was captured, or were purged, have been in no file."""
    async with (
        ferrymq.connect(server.url) as connection,
        connection.management() as management,
    ):
        await publish(server, "orders", 10)
        await until(lambda: held(server, "orders") == {0: 10})
        await management.update("stream", "orders", {"capture": False})
        await until(lambda: held(server, "orders") is None)
        await publish(server, "orders", 5)
        await management.purge("stream", "orders")
        await management.update("stream", "orders", {"capture": True})
        await until(lambda: held(server, "orders") == {0: 15})
        await publish(server, "orders", 10)
        await until(lambda: held(server, "orders") == {0: 25})
    await server.close()
    assert covered(tmp_path, "orders") == [(0, 10), (15, 25)]
    folder = tmp_path / "capture" / "orders"
    async with BrokerServer(config_of(tmp_path)) as again:
        await publish(again, "orders", 1)
        await until(lambda: held(again, "orders") == {0: 26})
    assert not [line for line in caplog.messages if "missing" in line]
    # What was there and is not is told: from what was captured on, and not from the gap.
    for each in files_of(tmp_path, "orders"):
        if each.first >= 15:
            (folder / each.path).unlink()
    async with BrokerServer(config_of(tmp_path)) as again:
        await publish(again, "orders", 1)
        await until(lambda: held(again, "orders") == {0: 27})
    (said,) = [line for line in caplog.messages if "missing" in line]
    assert "'first': 15" in said and "'next': 26" in said


async def test_a_purge_leaves_nothing_missing(
    server: BrokerServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await publish(server, "orders", 10)
    await until(lambda: held(server, "orders") == {0: 10})
    stream = server.broker.default.nodes["orders"]
    assert isinstance(stream, Stream)
    assert server.capture is not None
    server.capture.kill()
    await publish(server, "orders", 5)
    async with (
        ferrymq.connect(server.url) as connection,
        connection.management() as management,
    ):
        await management.purge("stream", "orders")
    await server.close()
    async with BrokerServer(config_of(tmp_path)) as again:
        assert held(again, "orders") == {0: 15}
        await publish(again, "orders", 1)
        await until(lambda: held(again, "orders") == {0: 16})
    assert not [line for line in caplog.messages if "missing" in line]


async def test_a_hold_that_somebody_releases(server: BrokerServer, tmp_path: Path) -> None:
    """It is taken again, for all partitions, those to come too."""
    async with (
        ferrymq.connect(server.url) as connection,
        connection.management() as management,
    ):
        await management.update("stream", "orders", {"partitions": 2})
        await publish(server, "orders", 10)
        await until(lambda: held(server, "orders") == {0: 5, 1: 5})
        await management.request("RELEASE", "stream", "orders", {"holder": HOLDER})
        await until(lambda: held(server, "orders") == {0: 5, 1: 5})
        await management.update("stream", "orders", {"partitions": 3})
        await until(lambda: held(server, "orders") == {0: 5, 1: 5, 2: 0})


async def test_a_hold_that_is_released_before_a_file_is_closed(tmp_path: Path) -> None:
    """It is taken again for all partitions, not for that of the file alone."""
    # Closed before capture looks again.
    text = CONFIG.replace('"100ms"', '"200ms"')
    async with (
        BrokerServer(config_of(tmp_path, text)) as server,
        ferrymq.connect(server.url) as connection,
        connection.management() as management,
        connection.sender("orders::0") as sender,
    ):
        await management.update("stream", "orders", {"partitions": 2})
        await publish(server, "orders", 10)
        await until(lambda: held(server, "orders") == {0: 5, 1: 5})
        await sender.send(Message(b"x"))
        await until(lambda: bool(leftovers_in(LocalPlace(tmp_path / "capture" / "orders"))))
        await management.request("RELEASE", "stream", "orders", {"holder": HOLDER})
        await until(lambda: held(server, "orders") == {0: 6, 1: 5})


async def test_a_folder_with_files_of_many_partitions(tmp_path: Path) -> None:
    """What the process says of it is long."""
    place = LocalPlace(tmp_path / "orders")
    claim(place, "orders", "one")
    for number in range(6000):
        place.create(CaptureName(492_000, number, 0, 999_999).path).close()
    writer = await WriterProcess.start(CaptureOptions(str(tmp_path)))
    try:
        fields: dict[str, object] = {
            "id": 1,
            "stream": "orders",
            "incarnation": "one",
            "directory": str(tmp_path / "orders"),
        }
        writer.send(frame(OPEN, fields))
        said = await anext(writer.lines())
        assert said["next"] == {str(number): 1_000_000 for number in range(6000)}
    finally:
        await writer.end()


async def figures(server: BrokerServer) -> dict[str, float]:
    """What the monitoring listener says of capture."""
    assert server.monitoring is not None
    text = ""
    async with aiohttp.ClientSession() as session:
        for path in ("/metrics", "/metrics/nodes"):
            async with session.get(server.monitoring.url + path) as answer:
                text += await answer.text()
    return {
        line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1])
        for line in text.splitlines()
        if line.startswith("ferrymq_capture")
    }


async def test_the_partitions_of_other_brokers_are_not_captured_here(tmp_path: Path) -> None:
    text = CONFIG.replace(
        'name = "plain"',
        'name = "spread"\ncapture = true\n'
        'partitions-on = ["0-1 amqp://other.example", "2-3 amqp://this.example"]',
    )
    config = config_of(tmp_path, f'advertise = "amqp://this.example"\n{text}')
    async with BrokerServer(config) as server:
        for number in (2, 3):
            await publish(server, f"spread::{number}", 12)
        await until(lambda: records(tmp_path, "spread") == 24)
        await until(lambda: held(server, "spread") == {2: 12, 3: 12})
    assert {each.partition for each in files_of(tmp_path, "spread")} == {2, 3}
    async with BrokerServer(config) as server:
        await publish(server, "spread::3", 10)
        await until(lambda: records(tmp_path, "spread") == 34)


async def test_sums_do_not_fall_with_a_stream_that_is_captured_no_more(
    server: BrokerServer,
) -> None:
    await publish(server, "orders", 25)
    await publish(server, "log.one", 5)
    await until(lambda: held(server, "orders") == {0: 25} and held(server, "log.one") == {0: 5})
    async with (
        ferrymq.connect(server.url) as connection,
        connection.management() as management,
    ):
        before = await figures(server)
        await management.delete("stream", "orders")
        await management.update("stream", "log.one", {"capture": False})
        await until(lambda: held(server, "log.one") is None)
    after = await figures(server)
    for name in ("files", "records", "bytes", "failures", "records_lost"):
        series = f'ferrymq_capture_{name}_total{{virtual_host="default"}}'
        assert after[series] == before[series]
    assert after['ferrymq_capture_records_total{virtual_host="default"}'] == 30
    assert not any('address="orders",virtual_host="default"' in series for series in after)


async def test_figures(server: BrokerServer, tmp_path: Path) -> None:
    await publish(server, "orders", 25)
    await until(lambda: held(server, "orders") == {0: 25})
    found = await figures(server)
    here = '{virtual_host="default"}'
    own = '{address="orders",virtual_host="default"}'
    size = sum(
        (tmp_path / "capture/orders" / name.path).stat().st_size
        for name in files_of(tmp_path, "orders")
    )
    assert found[f"ferrymq_capture_lag_records{here}"] == 0
    assert found[f"ferrymq_capture_records_total{here}"] == 25
    assert found[f"ferrymq_capture_records_total{own}"] == 25
    assert found[f"ferrymq_capture_files_total{own}"] == len(files_of(tmp_path, "orders"))
    assert found[f"ferrymq_capture_bytes_total{own}"] == size
    assert found[f"ferrymq_capture_failures_total{own}"] == 0
    assert found["ferrymq_capture_running"] == 1
    assert found["ferrymq_capture_starts_total"] == 1


async def test_who_captures_no_more_holds_nothing(tmp_path: Path) -> None:
    async with BrokerServer(config_of(tmp_path)) as server:
        await publish(server, "orders", 5)
        assert held(server, "orders") is not None
    assert records(tmp_path, "orders") == 5
    text = CONFIG.replace('directory = "{path}/capture"', "").replace("capture = true", "")
    async with BrokerServer(config_of(tmp_path, text)) as server:
        assert held(server, "orders") is None


async def test_a_store_that_is_older_than_its_files(tmp_path: Path) -> None:
    """It was put back from a backup: offsets will be used a second time."""
    async with BrokerServer(config_of(tmp_path)) as server:
        await publish(server, "orders", 5)
    folder = tmp_path / "capture/orders"
    name, *others = [folder / each.path for each in files_of(tmp_path, "orders")]
    name.rename(name.with_name("p0-0-9.parquet"))
    for other in others:
        other.unlink()
    async with BrokerServer(config_of(tmp_path)) as server:
        assert server.capture is not None
        capture = server.capture
        await until(lambda: sum(each.failures for each in capture.figures().streams) > 0)
        await publish(server, "orders", 5)
    assert covered(tmp_path, "orders") == [(0, 10)]
