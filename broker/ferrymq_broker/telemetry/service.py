"""OpenTelemetry in a broker: what is recorded, and where it is sent."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import logging
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, MetricsData
from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from ferrymq_broker.broker import Broker
from ferrymq_broker.config.opentelemetry import OpenTelemetry
from ferrymq_broker.event_log import log
from ferrymq_broker.monitoring.metrics_registry import MetricsRegistry
from ferrymq_broker.telemetry.otlp_metrics import metrics_of
from ferrymq_broker.telemetry.span_buffer import SpanBuffer
from ferrymq_broker.telemetry.span_exporter import SpanExport
from ferrymq_broker.telemetry.span_metrics import SpanCollector
from ferrymq_broker.telemetry.span_recorder import SpanRecorder

_SCOPE: Final = "ferrymq"
_NAME: Final = "ferrymq"


class Telemetry:
    """The export of a broker's spans and metrics, from `start` to `close`.

    `container_id` is the instance of the service.
    """

    def __init__(self, settings: OpenTelemetry, broker: Broker, container_id: str) -> None:
        self._settings = settings
        self._broker = broker
        self._begun = time.time_ns()
        self._resource = _resource(settings, container_id)
        self._scope = InstrumentationScope(_SCOPE, importlib.metadata.version("ferrymq"))
        self._spans: SpanExport | None = None
        self._metrics: asyncio.Task[None] | None = None
        # The exporter says more, and with each try.
        logging.getLogger("opentelemetry.exporter").setLevel(logging.CRITICAL)

    def start(self, registry: MetricsRegistry) -> None:
        """Record spans of links that are attached from now on, and export the metrics of
        `registry`."""
        settings = self._settings
        if settings.traces:
            buffer = SpanBuffer(settings.max_spans, settings.max_bytes)
            loop = asyncio.get_running_loop()
            exporter = OTLPSpanExporter(endpoint=settings.url("traces"))
            self._spans = SpanExport(
                buffer,
                exporter,
                self._resource,
                self._scope,
                lambda works: loop.call_soon_threadsafe(_tell, "spans", works),
            )
            registry.add(SpanCollector(buffer))
            self._broker.shared.tracer = SpanRecorder(
                self._broker.agenda, buffer, settings.sampling_ratio
            )
            self._spans.start()
        if settings.metrics:
            self._metrics = asyncio.create_task(self._export_metrics(registry))

    async def close(self) -> None:
        """Export what is left, as far as that takes a few seconds."""
        if self._metrics is not None:
            self._metrics.cancel()
            await asyncio.wait([self._metrics])
        if self._spans is not None:
            await asyncio.to_thread(self._spans.close)

    async def _export_metrics(self, registry: MetricsRegistry) -> None:
        """Export metrics again and again."""
        exporter = OTLPMetricExporter(endpoint=self._settings.url("metrics"))
        works = True
        try:
            while True:
                await asyncio.sleep(self._settings.metrics_interval)
                data = metrics_of(
                    await registry.read(), self._resource, self._scope, self._begun, time.time_ns()
                )
                taken = await _in_thread(partial(_export, exporter, data))
                if taken != works:
                    works = taken
                    _tell("metrics", works)
        finally:
            exporter.shutdown()


def _export(exporter: MetricExporter, data: MetricsData) -> bool:
    try:
        return exporter.export(data) is MetricExportResult.SUCCESS
    except Exception:
        return False


async def _in_thread(call: Callable[[], bool]) -> bool:
    """Call a function in a thread that the end of the process does not wait for."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[bool] = loop.create_future()

    def settle(result: bool) -> None:
        if not done.done():
            done.set_result(result)

    def run() -> None:
        result = call()
        # The loop may be closed by now.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, result)

    threading.Thread(target=run, name="ferrymq-opentelemetry-metrics", daemon=True).start()
    return await done


def _tell(what: str, works: bool) -> None:
    if works:
        log.info("OpenTelemetry: the collector takes them again", what=what)
    else:
        log.warning("OpenTelemetry: the collector does not take them", what=what)


def _resource(settings: OpenTelemetry, container_id: str) -> Resource:
    """Return what the spans and metrics come from. The variables of the environment count more than
    defaults, and the file more than these."""
    attributes: dict[str, str] = {}
    named = Resource.create().attributes
    if SERVICE_INSTANCE_ID not in named or "service.instance.id" not in os.environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    ):
        attributes[SERVICE_INSTANCE_ID] = container_id
    if settings.service_name is not None:
        attributes[SERVICE_NAME] = settings.service_name
    elif str(named[SERVICE_NAME]).startswith("unknown_service"):
        attributes[SERVICE_NAME] = _NAME
    return Resource.create().merge(Resource(attributes))
