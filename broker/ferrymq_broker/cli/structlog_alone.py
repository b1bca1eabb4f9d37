"""Imports structlog without rich, before anything of the server imports it.

structlog imports rich if rich is installed, only to print tracebacks in colours, which the broker
does not. With rich it takes five times as long.
"""

from __future__ import annotations

import sys

if "rich" not in sys.modules:
    # The entry makes `import rich` fail.
    sys.modules["rich"] = None  # type: ignore[assignment]
    try:
        import structlog  # noqa: F401
    finally:
        del sys.modules["rich"]
