"""Spans and metrics for OpenTelemetry (`docs/decisions/0032-opentelemetry.md`). Importing a module
of this package needs the extra ``ferrymq[opentelemetry]``."""
