"""What ferrymq is compared with. A peer that is not installed is left out, and the report says so.

Each module offers the same operations by its own means, as that library's own code does them.
"""
