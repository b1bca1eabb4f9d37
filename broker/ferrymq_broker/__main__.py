"""``python -m ferrymq_broker`` is the ``ferrymq`` command."""

from __future__ import annotations

from ferrymq_broker.cli import main

if __name__ == "__main__":
    main()
