"""Says whether the compiled modules or their sources run."""

from __future__ import annotations

import ferrymq_codec.reader


def build_variant() -> str:
    """Return ``compiled`` or ``interpreted``. All modules that can be compiled are of one build."""
    return "interpreted" if ferrymq_codec.reader.__file__.endswith(".py") else "compiled"
