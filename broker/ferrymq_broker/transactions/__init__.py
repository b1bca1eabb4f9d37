"""Transactions: work that is remembered, and done in one pass (AMQP 1.0, part 4)."""
