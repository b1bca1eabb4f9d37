"""Leave out of the reference what classes of the clients have for their other parts only.

Such a class has two sections: the members for users, and below a line such as
`# ── For the client ────` the members for other modules of the client.
"""

from __future__ import annotations

import ast
import re
from typing import Any, Final

import griffe

INTERNAL: Final = re.compile(r"^    # ── (For the client|Events) ─")


class PublicMembers(griffe.Extension):
    """The extension of griffe, which reads the sources for mkdocstrings."""

    def on_class_members(self, *, node: Any, cls: griffe.Class, **_: Any) -> None:
        """Remove the members below the line."""
        if not isinstance(node, ast.ClassDef) or cls.lineno is None:
            return
        for number, line in enumerate(cls.lines, cls.lineno):
            if INTERNAL.match(line):
                for name, member in list(cls.members.items()):
                    if member.lineno is not None and member.lineno > number:
                        cls.del_member(name)
                return
