"""What capture raises.

CaptureError             everything below
 └─ IncarnationError     the files are of another stream that has had the same name
"""

from __future__ import annotations


class CaptureError(Exception):
    """The content of a directory of capture files is wrong, or would become so."""


class IncarnationError(CaptureError):
    """The files belong to another stream, which has had the same name."""
