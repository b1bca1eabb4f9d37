"""Durable links: termini that outlive their links, with their unsettled deliveries (AMQP 1.0
§2.6.13, §3.5.5–6)."""
