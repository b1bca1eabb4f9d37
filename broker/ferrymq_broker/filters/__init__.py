"""Filters of receivers (AMQP 1.0 §3.5.8)."""
