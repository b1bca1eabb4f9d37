"""Filters of receivers' sources (AMQP 1.0 §3.5.8)."""
