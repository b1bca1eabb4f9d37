"""Transactions: work that is collected and then done in one pass, or not at all (AMQP 1.0, part
4)."""
