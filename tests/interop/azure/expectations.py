"""The expected result of each feature with each client: what fails today, and what is absent.

A feature that is not listed works. The aim is that `FAILS` is empty.
"""

from __future__ import annotations

from typing import Final

from tests.interop.features.suite import Expectations

_UNCONFIRMED: Final = "was not refused"
"""An SDK that settles without waiting for the answer does not learn that a lock is lost."""

_KEPT: Final = "0 messages came"
"""An SDK may keep what it has fetched in advance when it closes; the locks have to expire."""

_OLDER: Final = {
    "close-releases": _KEPT,
    "lock-lost": _UNCONFIRMED,
    "session-lost": _UNCONFIRMED,
}

FAILS: Final[dict[str, dict[str, str]]] = {
    "servicebus==7.14.3": _OLDER,
    "servicebus==7.12.3": _OLDER,
}
"""By package or by client, and by feature: a pattern of the error."""

ABSENT: Final[dict[str, frozenset[str]]] = {
    "azure-servicebus": frozenset({"abandon-properties", "rule-manager"}),
    "@azure/service-bus": frozenset({"prefetch"}),
}
"""By package, the features that the SDK does not have."""


EXPECTATIONS: Final = Expectations(FAILS, ABSENT)
