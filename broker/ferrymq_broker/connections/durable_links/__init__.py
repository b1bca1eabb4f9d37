"""Termini that outlive their links, with what is unsettled on them (AMQP 1.0 §2.6.13, §3.5.5–6)."""
