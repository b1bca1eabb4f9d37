"""Several brokers in one query: which URLs lead to which of them, and the streams of all."""
