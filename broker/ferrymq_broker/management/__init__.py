"""Management over AMQP: what a broker has, made, read, changed and deleted by messages."""
