"""Expectation of each case on each broker; a case that is not listed works.

`EXPECTED` says what a broker lacks, or does otherwise than a user expects, and with which error a
program then sees it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["works", "lacks", "breaks", "varies", "unexpected"]


@dataclass(frozen=True)
class Expectation:
    """Expected result of a case: `text` is a pattern of the error."""

    kind: Literal["works", "lacks", "breaks", "varies"]
    text: str = ""
    slow: bool = False
    """Whether it takes seconds to see, too many for `make test`."""


WORKS: Final = Expectation("works")
_WORKS_SLOW: Final = Expectation("works", slow=True)


def _lacks(text: str) -> Expectation:
    """Return that the broker has no such thing, and says so or is known for it."""
    return Expectation("lacks", text)


def _breaks(text: str, slow: bool = False) -> Expectation:
    """Return that the broker does something else than what it was asked for."""
    return Expectation("breaks", text, slow)


_NO_DYNAMIC: Final = _lacks(r"Dynamic \w+ not supported|no dynamic")
_NO_TRANSACTIONS: Final = _lacks(
    r"Transactions not supported|no transactions|declare with Accepted"
)
_NO_RELAY: Final = _lacks("ANONYMOUS-RELAY")
_NO_FILTERS: Final = _lacks(r"filter|selector|start|position")
_NO_USERS: Final = _lacks("knows no users")
_NO_TLS: Final = _lacks("has no TLS")
_MADE: Final = _lacks("was not refused")
_GONE: Final = r"are gone|no message came"

_RABBIT: Final = {
    "dynamic-queue": _NO_DYNAMIC,
    "request": _NO_DYNAMIC,
    "blocking-request": _NO_DYNAMIC,
    "commit": _NO_TRANSACTIONS,
    "blocking-transaction": _NO_TRANSACTIONS,
    "rollback": _NO_TRANSACTIONS,
    "selector": _NO_FILTERS,
    "command-selector": _NO_FILTERS,
    "management-node": _lacks("has no such node"),
}
_NO_STREAM: Final = _lacks("does not apply")

EXPECTED: Final[dict[str, dict[str, Expectation]]] = {
    "ferrymq": {
        "refused-user-id": _lacks("was not refused"),
        # Other tests show this of ferrymq.
        "killed": _WORKS_SLOW,
        "prefetch-2": _WORKS_SLOW,
        "blocking-prefetch": _WORKS_SLOW,
        "command-browse": _WORKS_SLOW,
    },
    "rabbitmq-3": {
        **_RABBIT,
        "modify": _lacks("does not grant the outcome amqp:modified:list"),
        "list-in-body": _breaks("without a close", slow=True),
        "anonymous-terminus": _NO_RELAY,
        "drain": _breaks("function_clause|drain"),
        # It waits seconds before it refuses a login: one case is enough.
        "blocking-plain-wrong": _WORKS_SLOW,
        "command-wrong-password": _WORKS_SLOW,
        # It is started again.
        "killed": _WORKS_SLOW,
        "unroutable": _breaks("was not refused"),
        "stream-first": _NO_STREAM,
        "stream-offset": _NO_STREAM,
        "stream-next": _NO_STREAM,
        "stream-by-filter": _NO_STREAM,
        "command-stream-start": _NO_STREAM,
    },
    "rabbitmq-4": _RABBIT,
    "proton": {
        **dict.fromkeys(
            (
                "plain",
                "plain-wrong",
                "blocking-plain-wrong",
                "command-wrong-password",
                "refused-by-rights",
                "refused-user-id",
            ),
            _NO_USERS,
        ),
        **dict.fromkeys(("tls", "command-tls", "tls-wrong-authority"), _NO_TLS),
        "receive-settled": _breaks("settled:"),
        **dict.fromkeys(
            ("close-gives-back", "blocking-outcomes", "modify"), _breaks(_GONE, slow=True)
        ),
        # What was sent to a receiver never comes again.
        "release": _breaks(_GONE, slow=True),
        **dict.fromkeys(
            (
                "browse",
                "blocking-browse",
                "command-browse",
                "browse-settled",
                "browse-part",
                "command-browse-one",
                "browse-lost",
            ),
            _lacks("cannot be browsed"),
        ),
        "worker": _breaks("are gone|handled only", slow=True),
        "blocking-worker": _breaks("are gone|handled only", slow=True),
        **dict.fromkeys(("commit", "blocking-transaction", "rollback"), _NO_TRANSACTIONS),
        **dict.fromkeys(
            ("selector", "command-selector", "stream-offset", "command-stream-start",
             "stream-next", "stream-by-filter"),
            _NO_FILTERS,
        ),
        # Without the filter, all there is comes as well.
        "stream-first": Expectation("varies", "filter|start|position"),
        "anonymous-terminus": _NO_RELAY,
        "drain": _breaks("does not answer a drain"),
        "blocking-prefetch": _WORKS_SLOW,
        "prefetch-2": _WORKS_SLOW,
        **dict.fromkeys(
            ("refused-sender", "blocking-refused", "refused-with-reconnect", "refused-receiver"),
            _MADE,
        ),
        "killed": _lacks("stores nothing"),
    },
}  # fmt: skip


def expected(site: str, case: str) -> Expectation:
    """Return what is expected of a case on a broker."""
    return EXPECTED.get(site, {}).get(case, WORKS)


def judge(site: str, case: str, error: str) -> Kind:
    """Return what it means that the case ended with the error on the broker."""
    what = expected(site, case)
    if what.kind == "works" and not error:
        return "works"
    if what.kind == "varies" and not error:
        return "varies"
    if what.kind != "works" and error and re.search(what.text, error):
        return what.kind
    return "unexpected"
