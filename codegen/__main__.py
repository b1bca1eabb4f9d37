"""`python -m codegen`, from a checkout."""

from __future__ import annotations

import sys
from pathlib import Path

# The generator also works in an environment without ferrymq.
sys.path.insert(0, str(Path(__file__).resolve().parent))

from ferrymq_codegen.cli import main

if __name__ == "__main__":
    sys.exit(main())
