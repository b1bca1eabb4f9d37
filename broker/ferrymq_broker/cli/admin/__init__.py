"""``ferrymq admin``: a broker looked at and changed from outside, over AMQP."""
