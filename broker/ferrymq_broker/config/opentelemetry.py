"""Settings of the export to a collector of OpenTelemetry: ``[opentelemetry]``."""

from __future__ import annotations

import importlib.util
import os
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from ferrymq_broker.config.section import Section
from ferrymq_broker.config.units import Seconds, Size


def _check_endpoint(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("an endpoint is written http://HOST:PORT or https://HOST:PORT")
    if "@" in parts.netloc:
        raise ValueError(
            "credentials belong into OTEL_EXPORTER_OTLP_HEADERS, not into the endpoint"
        )
    return url.rstrip("/")


def _is_installed() -> bool:
    try:
        return importlib.util.find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:
        # A package around it is missing.
        return False


class OpenTelemetry(Section):
    """``[opentelemetry]``: spans of messages (`traces`) and `metrics`, sent by OTLP over HTTP; none
    by default.

    `endpoint` is the base URL of the collector; without it the variables of the environment say it
    (``OTEL_EXPORTER_OTLP_ENDPOINT``), else it is ``http://localhost:4318``. `sampling_ratio` is the
    share of messages without a context for which the broker begins a trace. Spans that wait are at
    most `max_spans`, of at most `max_bytes`; others are lost. Metrics are sent every
    `metrics_interval` seconds.
    """

    traces: bool = False
    metrics: bool = False
    endpoint: Annotated[str, AfterValidator(_check_endpoint)] | None = None
    service_name: Annotated[str, Field(min_length=1, max_length=255)] | None = None
    sampling_ratio: float = Field(default=0.0, ge=0.0, le=1.0)
    metrics_interval: Annotated[Seconds, Field(ge=0.1)] = 60.0
    max_spans: int = Field(default=8192, ge=1)
    max_bytes: Annotated[Size, Field(ge=65536)] = 16 * 1024 * 1024

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.is_on():
            if self.model_fields_set - {"traces", "metrics"}:
                raise ValueError("nothing is exported: set traces = true, or metrics = true")
            return self
        if not _is_installed():
            raise ValueError(
                "OpenTelemetry needs further packages: pip install 'ferrymq[opentelemetry]'"
            )
        return self

    def is_on(self) -> bool:
        """Return whether anything is exported."""
        return self.traces or self.metrics

    def is_disabled(self) -> bool:
        """Return whether the environment forbids it (``OTEL_SDK_DISABLED``)."""
        return os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"

    def url(self, signal: Literal["traces", "metrics"]) -> str | None:
        """Return where a signal is sent; None if the environment says it."""
        return None if self.endpoint is None else f"{self.endpoint}/v1/{signal}"
