"""The sans-IO engine of AMQP 0-9-1: bytes in, events out."""
