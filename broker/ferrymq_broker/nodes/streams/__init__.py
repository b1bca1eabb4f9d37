"""Streams: logs of messages that stay where they are, read by many from where they like."""
