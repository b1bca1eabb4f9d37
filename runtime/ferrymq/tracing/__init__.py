"""AMQP in readable form: frames found in bytes, fields by name, secrets removed."""
