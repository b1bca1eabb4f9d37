"""`python -m ferrymq_codegen`; in a checkout, `python -m codegen` is the same."""

from __future__ import annotations

import sys

from ferrymq_codegen.cli import main

if __name__ == "__main__":
    sys.exit(main())
