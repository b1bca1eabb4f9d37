"""The sink: rows of a frame as messages, into streams, queues and topics."""
