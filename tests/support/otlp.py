"""A collector of OpenTelemetry for tests: it takes OTLP over HTTP on the loopback interface."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span as Encoded


class ReceivedSpan(NamedTuple):
    """A span as it was exported; ids are hexadecimal."""

    service: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: str
    begun: int
    ended: int
    attributes: dict[str, Any]
    links: list[tuple[str, str]]
    state: str
    failed: bool


class Collector:
    """A collector with the spans and metrics that it was sent. `status` is its answer."""

    def __init__(self) -> None:
        self.status = 200
        self.spans: list[ReceivedSpan] = []
        self.metrics: dict[str, list[tuple[dict[str, str], float, str]]] = {}
        self.resources: list[dict[str, Any]] = []
        self._changed = threading.Condition()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # One write for the whole answer.
            wbufsize = 65536

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                answer = b""
                if collector.status == 200:
                    answer = collector.take(self.path, body)
                self.send_response(collector.status)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: Any) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def take(self, path: str, body: bytes) -> bytes:
        with self._changed:
            if path == "/v1/traces":
                self._take_spans(ExportTraceServiceRequest.FromString(body))
                answer = ExportTraceServiceResponse().SerializeToString()
            else:
                assert path == "/v1/metrics"
                self._take_metrics(ExportMetricsServiceRequest.FromString(body))
                answer = ExportMetricsServiceResponse().SerializeToString()
            self._changed.notify_all()
        return answer

    def _take_spans(self, request: ExportTraceServiceRequest) -> None:
        for resource in request.resource_spans:
            about = _values(resource.resource.attributes)
            self.resources.append(about)
            for scope in resource.scope_spans:
                for span in scope.spans:
                    self.spans.append(
                        ReceivedSpan(
                            about.get("service.name", ""),
                            span.name,
                            span.trace_id.hex(),
                            span.span_id.hex(),
                            span.parent_span_id.hex(),
                            Encoded.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
                            span.start_time_unix_nano,
                            span.end_time_unix_nano,
                            _values(span.attributes),
                            [(link.trace_id.hex(), link.span_id.hex()) for link in span.links],
                            span.trace_state,
                            span.status.code == 2,
                        )
                    )

    def _take_metrics(self, request: ExportMetricsServiceRequest) -> None:
        self.metrics = {}
        for resource in request.resource_metrics:
            self.resources.append(_values(resource.resource.attributes))
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    kind = metric.WhichOneof("data")
                    points = getattr(metric, kind).data_points
                    self.metrics[metric.name] = [
                        (
                            _values(point.attributes),
                            point.as_int if point.HasField("as_int") else point.as_double,
                            kind,
                        )
                        for point in points
                    ]

    def wait(self, done: Callable[[Collector], bool], timeout: float = 30.0) -> None:
        """Wait until a condition holds."""
        with self._changed:
            assert self._changed.wait_for(lambda: done(self), timeout), self.names()

    def names(self) -> list[str]:
        return sorted(span.name for span in self.spans)

    def named(self, name: str) -> ReceivedSpan:
        """Return the only span of a name."""
        (found,) = [span for span in self.spans if span.name == name]
        return found


def _values(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


@contextmanager
def collector() -> Iterator[Collector]:
    """Run a collector."""
    made = Collector()
    try:
        yield made
    finally:
        made.close()
