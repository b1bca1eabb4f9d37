"""Queues: each message goes to one consumer."""
