"""What fails today with which client, and which features a client does not have.

A feature that is not listed works. The aim is that `FAILS` is empty.
"""

from __future__ import annotations

import re
from typing import Final

from tests.interop.azure.clients import Client, Outcome

FAILS: Final[dict[str, dict[str, str]]] = {}
"""By client and feature, a pattern of the error. The key `*` of a client stands for all of them."""

ABSENT: Final[dict[str, frozenset[str]]] = {}
"""By package, the features that the SDK does not have."""


def judge(client: Client, name: str, outcome: Outcome) -> str:
    """Return what is unexpected about an outcome; empty if it is as expected."""
    absent = name in ABSENT.get(client.package, frozenset())
    if absent or outcome.verdict == "absent":
        there = "is expected not to have it" if absent else "is expected to have it"
        return "" if absent and outcome.verdict == "absent" else f"{client.title} {there}"
    pattern = expected(client, name)
    if pattern is None:
        return outcome.error
    if outcome.verdict == "passed":
        return f"it works, and is expected to fail: {pattern}"
    return "" if re.search(pattern, outcome.error) else outcome.error


def expected(client: Client, name: str) -> str | None:
    """Return a pattern of the error that is expected; None if the feature works."""
    return FAILS.get(client.key, {}).get(name, FAILS.get("*", {}).get(name))
