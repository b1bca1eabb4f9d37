"""Monitoring of a broker: metrics, liveness, readiness."""
