"""What fails today with which client.

A feature that is not listed works, or the client has no case for it. The aim is that `FAILS` is
empty.
"""

from __future__ import annotations

from typing import Final

from tests.interop.features.suite import Expectations

FAILS: Final[dict[str, dict[str, str]]] = {}
"""By package or by client, and by feature: a pattern of the error."""

EXPECTATIONS: Final = Expectations(FAILS, None)
