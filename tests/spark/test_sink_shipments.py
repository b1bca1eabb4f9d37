"""Shipments: rows are sent together, whatever the sizes of the Arrow batches that they come in."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ferrymq import Digest
from pyspark_ferrymq.errors import AmqpWriteError
from pyspark_ferrymq.writing.options import SinkOptions
from pyspark_ferrymq.writing.rows import RowBatches, Shipment
from pyspark_ferrymq.writing.task_identity import TaskIdentity

WORK = TaskIdentity("job", 0, 0)
KIB = 1024


def shipped(batches: list[pa.RecordBatch], **options: str) -> tuple[list[Shipment], Digest | None]:
    """The shipments of all batches, and the digest."""
    parsed = SinkOptions.parse({"url": "amqp://localhost", **options}, streaming=False)
    rows = RowBatches(parsed, WORK)
    shipments = [shipment for batch in batches for shipment in rows.shipments(batch)]
    shipments += rows.rest()
    assert rows.count == sum(batch.num_rows for batch in batches)
    return shipments, rows.digest


def frame(count: int, size: int = KIB, addresses: int = 0) -> pa.RecordBatch:
    columns: dict[str, list[object]] = {
        "body": [row.to_bytes(4, "big") * (size // 4) for row in range(count)]
    }
    if addresses:
        columns["address"] = [f"a{row % addresses}" for row in range(count)]
    return pa.RecordBatch.from_pydict(columns)


def divided(batch: pa.RecordBatch, step: int) -> list[pa.RecordBatch]:
    return [batch.slice(first, step) for first in range(0, batch.num_rows, step)]


@pytest.mark.parametrize("step", [1, 700, 5000, 20_000])
def test_shipments_have_the_rows_in_order_and_end_at_some_size(step: int) -> None:
    whole = frame(9000)
    shipments, digest = shipped(divided(whole, step), address="s")
    assert [row for one in shipments for row in one.rows] == list(range(9000))
    assert [one.end for one in shipments] == [one.rows[-1] + 1 for one in shipments]
    sizes = [sum(map(len, one.payloads)) for one in shipments]
    assert max(sizes) < 7 * KIB * KIB and min(sizes[:-1]) > 3 * KIB * KIB
    # Neither the messages nor their digest depend on the batches.
    together, same = shipped([whole], address="s")
    messages = [payload for one in shipments for payload in one.payloads]
    assert messages == [payload for one in together for payload in one.payloads]
    assert digest is not None and digest == same and digest.rows == 9000


@pytest.mark.parametrize("step", [1000, 25_000])
def test_shipments_of_small_rows_end_at_some_number(step: int) -> None:
    shipments, _ = shipped(divided(frame(25_000, 4), step), address="s")
    assert [len(one.payloads) for one in shipments] == [10_000, 10_000, 5000]


def test_rows_with_addresses_share_shipments_too() -> None:
    whole = frame(6000, addresses=3)
    shipments, digest = shipped(divided(whole, 100))
    together, same = shipped([whole])
    assert len(shipments) <= 2 * 3
    assert sorted(row for one in shipments for row in one.rows) == list(range(6000))
    for one in shipments:
        assert all(one.address == f"a{row % 3}" for row in one.rows)
    assert digest is not None and digest == same and digest.rows == 6000
    # When a shipment is accepted, all rows before its end are: only the last one of some says so.
    ends = [one.end for one in shipments]
    assert ends == sorted(ends) and ends[-1] == 6000
    assert sum(len(one.rows) for one in together) == 6000


def test_errors_say_where_the_row_is() -> None:
    batch = pa.RecordBatch.from_pydict({"body": [b"x"] * 30, "ttl": [1] * 25 + [-1] * 5})
    with pytest.raises(AmqpWriteError, match=r"ttl: row 5: .*from row 20 of the task on"):
        shipped(divided(batch, 10), address="s")
    batch = pa.RecordBatch.from_pydict({"body": [b"x"] * 3, "address": ["a", "a", None]})
    with pytest.raises(AmqpWriteError, match="row 5 has no address"):
        shipped([pa.RecordBatch.from_pydict({"body": [b"x"] * 3, "address": ["a"] * 3}), batch])


def test_without_rows_there_is_no_shipment() -> None:
    assert shipped([], address="s")[0] == shipped([frame(0)], address="s")[0] == []
    assert shipped([frame(0, addresses=1)])[0] == []
