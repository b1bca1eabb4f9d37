"""Pages of the site about all AMQP types and methods, which the generator makes from the XML."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mkdocs.structure.files import File, Files, InclusionLevel

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig

ROOT: Final = Path(__file__).resolve().parents[1]
FOLDER: Final = "reference/types"
FOLDER_0_9_1: Final = "reference/amqp-0-9-1"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each part of AMQP 1.0 and each class of AMQP 0-9-1, and their indices."""
    codegen = str(ROOT / "codegen")
    if codegen not in sys.path:
        sys.path.insert(0, codegen)
    from ferrymq_codegen import amqp_0_9_1, amqp_1_0

    for folder, pages in ((FOLDER, amqp_1_0.pages()), (FOLDER_0_9_1, amqp_0_9_1.pages())):
        for name, text in pages.items():
            where = InclusionLevel.UNDEFINED if name == "index.md" else InclusionLevel.NOT_IN_NAV
            path = f"{folder}/{name}"
            files.append(File.generated(config, path, content=text, inclusion=where))
    return files
