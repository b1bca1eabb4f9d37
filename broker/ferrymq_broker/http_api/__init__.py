"""Management over HTTP: a translation of requests in JSON to those of the management node."""
