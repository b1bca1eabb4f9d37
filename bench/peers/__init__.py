"""The peers of ferrymq. A peer that is not installed is left out, and the report says so.

Each module offers the same operations, implemented like that library's own code.
"""
