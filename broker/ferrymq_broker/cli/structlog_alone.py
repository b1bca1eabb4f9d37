"""Imports structlog without what it imports if it is installed, before anything of the server
imports it.

rich is for tracebacks in colours, which the broker does not print, and takes five times as long as
structlog. greenlet is for values that belong to a greenlet. colorama is for colours on Windows.
"""

from __future__ import annotations

import sys

_UNUSED = ["rich", "greenlet"] if sys.platform == "win32" else ["rich", "greenlet", "colorama"]

_absent = [name for name in _UNUSED if name not in sys.modules]
for _name in _absent:
    # The entry makes the import fail.
    sys.modules[_name] = None  # type: ignore[assignment]
try:
    import structlog  # noqa: F401
finally:
    for _name in _absent:
        del sys.modules[_name]
