"""Which messages a receiver wants (AMQP 1.0 §3.5.8)."""
