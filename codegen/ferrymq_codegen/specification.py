"""The folders with the XML of each protocol, of the installed package or of the checkout around
it."""

from __future__ import annotations

from pathlib import Path
from typing import Final


def _folder() -> Path:
    """Return the folder with `amqp.dtd` that is next to this module, or else above it."""
    for parent in Path(__file__).resolve().parents:
        if (parent / "spec" / "amqp.dtd").is_file():
            return parent / "spec"
    raise FileNotFoundError("the folder spec, which belongs to ferrymq_codegen, is missing")


SPECIFICATION: Final = _folder()
"""The files of AMQP 1.0 and their DTD."""

FOLDERS: Final = (SPECIFICATION, SPECIFICATION / "extensions")
"""The folders from which `ferrymq_types` is generated."""

CORE: Final = "ferrymq_types"
"""The package that is generated from them."""

DTD: Final = SPECIFICATION / "amqp.dtd"
"""The DTD that every file is validated against."""

FOLDERS_0_9_1: Final = (
    SPECIFICATION / "amqp-0-9-1",
    SPECIFICATION / "amqp-0-9-1" / "extensions",
)
"""The folders from which `ferrymq_types_0_9_1` is generated."""

CORE_0_9_1: Final = "ferrymq_types_0_9_1"
"""The package that is generated from them."""

DTD_0_9_1: Final = SPECIFICATION / "amqp-0-9-1" / "amqp-0-9-1.dtd"
"""The DTD that the files of AMQP 0-9-1 are validated against."""

ROOT: Final = SPECIFICATION.parent
"""The checkout; in an installation, the folder of this package."""
