"""Exchanges: bindings decide where each message goes."""
