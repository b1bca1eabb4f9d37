"""What scans messages and fills the buffers of columns, and what writes messages out of buffers.

Compiled, and without pyarrow: a buffer is bytes laid out as Arrow lays them out, little-endian.
"""
