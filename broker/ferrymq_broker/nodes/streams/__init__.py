"""Streams: logs of messages that stay when they are read; every reader chooses its position."""
