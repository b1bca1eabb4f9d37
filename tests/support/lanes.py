"""How much a test does: a slice of it for `make test`, all of it for `make test-all`.

    for seed in range(amount(4, 60)): ...

`make test-all` sets FERRYMQ_TEST_ALL=1. Tests that are worth nothing when made smaller are marked
`slow` instead, and `make test` leaves them out.
"""

from __future__ import annotations

import os
from typing import Final

EVERYTHING: Final = os.environ.get("FERRYMQ_TEST_ALL") == "1"


def amount(slice_of_it: int, all_of_it: int) -> int:
    """Return how many seeds, examples or kills this run takes."""
    return all_of_it if EVERYTHING else slice_of_it
