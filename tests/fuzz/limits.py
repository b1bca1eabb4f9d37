"""What one input may cost."""

from __future__ import annotations

from typing import Final

TIMEOUT: Final = 10
"""Seconds for one input; more is a hang, and a failure."""

SLOW: Final = 5
"""Seconds of processor time for one input; more is a failure too."""

MAX_MEMORY: Final = 2 << 30
"""Bytes of memory for a process that tries inputs."""
