"""Messages of AMQP 0-9-1 as messages of AMQP 1.0, and back."""
