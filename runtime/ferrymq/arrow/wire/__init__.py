"""Scanners that fill the buffers of columns from messages, and writers of messages from buffers.

Compiled, and without pyarrow: a buffer is bytes in Arrow's layout, little-endian.
"""
