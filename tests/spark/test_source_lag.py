"""The lag of a query, from what Spark reports of its batches."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from pyspark_ferrymq.lag import Lag, LagListener, lag_of
from pyspark_ferrymq.offsets import Offset, PartitionOffset

QUERY = UUID("12345678-1234-5678-1234-567812345678")


def offset(incarnation: str = "x", **partitions: dict[int, int]) -> str:
    return json.dumps(
        Offset({name: PartitionOffset(incarnation, p) for name, p in partitions.items()}).to_json()
    )


def progress(*sources: tuple[str | None, str | None]) -> Any:
    return SimpleNamespace(
        id=QUERY,
        name="till",
        batchId=3,
        timestamp="2026-01-01T00:00:00.000Z",
        sources=[SimpleNamespace(endOffset=end, latestOffset=latest) for end, latest in sources],
    )


def test_what_is_not_read() -> None:
    lag = lag_of(progress((offset(a={0: 5, 1: 7}), offset(a={0: 9, 1: 7, 2: 4}, b={0: 2}))))
    assert lag is not None
    assert lag.streams == {"a": {0: 4, 1: 0, 2: 4}, "b": {0: 2}}
    assert lag.total == 10
    assert str(lag) == "query till, batch 3: 10 records behind (a 8, b 2)"


def test_a_stream_made_anew_is_all_to_be_read() -> None:
    lag = lag_of(progress((offset("old", a={0: 500}), offset("new", a={0: 9}))))
    assert lag is not None and lag.total == 9


def test_of_two_sources_the_one_that_is_behind_counts() -> None:
    there = offset(a={0: 10})
    lag = lag_of(progress((offset(a={0: 9}), there), (offset(a={0: 4}), there)))
    assert lag is not None and lag.streams == {"a": {0: 6}}


@pytest.mark.parametrize(
    "source", [(None, None), ("null", "null"), ("7", "9"), ('{"logOffset":1}', None), ("{", "{")]
)
def test_other_sources_have_no_lag_here(source: tuple[str | None, str | None]) -> None:
    assert lag_of(progress(source)) is None


def test_a_listener_tells(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    told: list[Lag] = []
    file = tmp_path / "lag.json"
    listener = LagListener(told.append, log=True, file=file)
    report = progress((offset(a={0: 5}), offset(a={0: 9})))
    with caplog.at_level(logging.INFO, "pyspark_ferrymq.lag"):
        listener.onQueryProgress(SimpleNamespace(progress=report))  # type: ignore[arg-type]
    assert [lag.total for lag in told] == [4]
    assert "4 records behind" in caplog.text
    assert json.loads(file.read_text()) == {
        "queries": {
            str(QUERY): {
                "name": "till",
                "batch": 3,
                "timestamp": "2026-01-01T00:00:00.000Z",
                "total": 4,
                "streams": {"a": {"0": 4}},
                "running": True,
            }
        }
    }
    listener.onQueryTerminated(SimpleNamespace(id=QUERY))  # type: ignore[arg-type]
    assert json.loads(file.read_text())["queries"][str(QUERY)]["running"] is False
    assert [path.name for path in tmp_path.iterdir()] == ["lag.json"]


def test_a_callback_that_fails_disturbs_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(lag: Lag) -> None:
        raise RuntimeError("no")

    report = progress((offset(a={0: 5}), offset(a={0: 9})))
    listener = LagListener(fail, file=tmp_path / "lag.json")
    listener.onQueryProgress(SimpleNamespace(progress=report))  # type: ignore[arg-type]
    assert "the callback" in caplog.text and (tmp_path / "lag.json").exists()
    LagListener(file=tmp_path / "no" / "lag.json").onQueryProgress(
        SimpleNamespace(progress=report)  # type: ignore[arg-type]
    )
    assert "cannot be written" in caplog.text
