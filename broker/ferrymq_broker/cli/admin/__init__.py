"""``ferrymq admin``: commands that manage a running broker, over AMQP."""
