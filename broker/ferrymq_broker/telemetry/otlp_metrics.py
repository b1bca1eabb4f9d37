"""Metrics of the registry of ``/metrics`` as metrics of OpenTelemetry."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client.core import Metric as Family
from prometheus_client.registry import CollectorRegistry

_COUNTER: Final = "counter"
# Samples of counters that are no values: when the counter began.
_CREATED: Final = "_created"


def metrics_of(
    registry: CollectorRegistry,
    resource: Resource,
    scope: InstrumentationScope,
    begun: int,
    now: int,
) -> MetricsData:
    """Return all metrics of `registry`, with the same names and labels. A counter becomes a
    monotonic cumulative sum since `begun`, anything else a gauge. Times are in nanoseconds."""
    metrics = list(_metrics(registry.collect(), begun, now))
    scoped = ScopeMetrics(scope=scope, metrics=metrics, schema_url="")
    return MetricsData([ResourceMetrics(resource, [scoped], "")])


def _metrics(families: Iterable[Family], begun: int, now: int) -> Iterable[Metric]:
    for family in families:
        points = [
            NumberDataPoint(
                attributes=dict(sample.labels),
                start_time_unix_nano=begun,
                time_unix_nano=now,
                value=_number(sample.value),
            )
            for sample in family.samples
            if not sample.name.endswith(_CREATED) and not math.isnan(sample.value)
        ]
        if not points:
            continue
        data: Sum | Gauge
        if family.type == _COUNTER:
            data = Sum(points, AggregationTemporality.CUMULATIVE, is_monotonic=True)
        else:
            data = Gauge(points)
        yield Metric(family.name, family.documentation, family.unit or "", data)


def _number(value: float) -> int | float:
    return int(value) if float(value).is_integer() else value
