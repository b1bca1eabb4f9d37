"""Pages of the site about all AMQP types, which the generator makes from the specification."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mkdocs.structure.files import File, Files, InclusionLevel

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig

ROOT: Final = Path(__file__).resolve().parents[1]
FOLDER: Final = "reference/types"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each part of the specification, and an index."""
    codegen = str(ROOT / "codegen")
    if codegen not in sys.path:
        sys.path.insert(0, codegen)
    from ferrymq_codegen.reference import core_pages

    for name, text in core_pages().items():
        where = InclusionLevel.UNDEFINED if name == "index.md" else InclusionLevel.NOT_IN_NAV
        path = f"{FOLDER}/{name}"
        files.append(File.generated(config, path, content=text, inclusion=where))
    return files
