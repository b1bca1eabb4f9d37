"""The command ``ferrymq``, as ``python -m ferrymq_broker``."""

from __future__ import annotations

from ferrymq_broker.cli import main

if __name__ == "__main__":
    main()
