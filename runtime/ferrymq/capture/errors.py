"""What capture raises.

CaptureError             everything below
 └─ IncarnationError     the files are of another stream that has had the same name
"""

from __future__ import annotations


class CaptureError(Exception):
    """What is in a directory of capture files, or is to come into it, cannot be right."""


class IncarnationError(CaptureError):
    """The files are of another stream than the one there is, though that has the same name."""
