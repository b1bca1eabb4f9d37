"""AMQP as a person reads it: frames found in bytes, their fields by name, and no secrets."""
