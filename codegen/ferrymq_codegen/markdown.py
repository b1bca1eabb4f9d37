"""Text of specifications in Markdown."""

from __future__ import annotations

import html
import re
from typing import Final

from ferrymq_codegen.docs import plain

# Characters that Markdown would take for markup.
_MARKUP: Final = re.compile(r"([\\`*_\[\]|])")


def escaped(text: str) -> str:
    """Return a text without markup."""
    return _MARKUP.sub(r"\\\1", html.escape(text, quote=False))


def cell(text: str) -> str:
    """Return a text as the cell of a table: on one line."""
    return escaped(" ".join(plain(text).split()))
