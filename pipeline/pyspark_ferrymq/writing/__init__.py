"""The sink: rows of a frame are sent as messages to streams, queues and topics."""
