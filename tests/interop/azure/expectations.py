"""The expected result of each feature with each client: what fails today, and what is absent.

A feature that is not listed works. The aim is that `FAILS` is empty.
"""

from __future__ import annotations

import re
from typing import Final

from tests.interop.azure.clients import Client, Outcome

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


def judge(client: Client, name: str, outcome: Outcome) -> str:
    """Return what is unexpected about an outcome; empty if it is as expected."""
    absent = name in ABSENT.get(client.package, frozenset())
    if absent != (outcome.verdict == "absent"):
        return "expected to be absent" if absent else "not expected to be absent"
    if absent:
        return ""
    pattern = expected(client, name)
    if pattern is None:
        return outcome.error
    if outcome.verdict == "passed":
        return f"it works, and is expected to fail: {pattern}"
    return "" if re.search(pattern, outcome.error) else outcome.error


def expected(client: Client, name: str) -> str | None:
    """Return a pattern of the error that is expected; None if the feature works."""
    of_package = FAILS.get(client.package, {})
    return FAILS.get(client.key, {}).get(name, of_package.get(name))
