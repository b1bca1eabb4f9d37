"""How far a broker is that is not ready, for those who ask and in the log."""

from __future__ import annotations

import logging

import pytest

from ferrymq_broker.monitoring.store_stats import Histogram
from ferrymq_broker.server.startup_progress import LOG_PERIOD, LoggedProgress, percent, readiness_of


@pytest.mark.parametrize(
    ("done", "total", "expected"),
    [(0, 10, 0), (43, 100, 43), (999, 1000, 99), (1000, 1000, 100), (5, 4, 100), (0, 0, 100)],
)
def test_all_is_done_only_when_it_is(done: int, total: int, expected: int) -> None:
    assert percent(done, total) == expected


def test_what_is_told() -> None:
    assert readiness_of("recovering", 43, 100) == (False, "recovering, 43 %")
    assert readiness_of("recovering", 43, 0) == (False, "recovering, 43")
    assert readiness_of("recovering", 0, 0) == (False, "recovering")


def test_a_line_in_the_log_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    progress = LoggedProgress(lambda: now)
    with caplog.at_level(logging.INFO, "ferrymq.broker"):
        for step in range(1, 101):
            now = step * LOG_PERIOD / 10
            progress("recovering", step, 100)
        said = [record.msg["percent"] for record in caplog.records]  # type: ignore[index]
        assert said == list(range(10, 101, 10))
        now += LOG_PERIOD
        progress("recovering", 7, 0)
        assert caplog.records[-1].msg["done"] == 7  # type: ignore[index]


def test_a_histogram_counts_what_is_not_above_its_bounds() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 3.0):
        histogram.add(value)
    assert histogram.buckets() == [("1", 2), ("2", 3), ("+Inf", 4)]
    assert (histogram.count, histogram.sum) == (4, 6.0)
