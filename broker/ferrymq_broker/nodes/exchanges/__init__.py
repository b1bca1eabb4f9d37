"""Exchanges: each message goes where bindings say."""
