"""What is expected of each case on each broker; without a word here, that it works.

`EXPECTED` says what a broker lacks, or does otherwise than a user expects, and with which error a
program then sees it. `NOT_YET` says where the client does not yet do what it should: such a case
may fail with any error. `python -m tests.interop.brokers run` names those that work now: remove
them from the table.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["works", "lacks", "breaks", "varies", "not yet", "unexpected"]


@dataclass(frozen=True)
class Expectation:
    """What a case does: `text` is a pattern of the error."""

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
}
_NO_STREAM: Final = _breaks(r"are gone|came within|stream|start", slow=True)

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
        # The message comes again, because the session ends; sometimes the connection does.
        "modify": Expectation("varies", "Unrecognised state|modif|without a close|session"),
        "worker": _breaks("Unrecognised state|are gone|handled only|session", slow=True),
        "blocking-worker": _breaks("Unrecognised state|are gone|handled only|session", slow=True),
        "list-in-body": _breaks("without a close", slow=True),
        "anonymous-terminus": _NO_RELAY,
        "drain": _breaks("function_clause|drain"),
        "unroutable": _breaks("was not refused"),
        "stream-first": _NO_STREAM,
        "stream-offset": _NO_STREAM,
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
            (
                "close-gives-back",
                "blocking-outcomes",
                "modify",
                "blocking-browse",
                "command-browse",
                "browse-settled",
                "browse-part",
                "command-browse-one",
                "browse-lost",
            ),
            _breaks(_GONE, slow=True),
        ),
        # What was sent to a receiver never comes again: two cases show it, in `make test` too.
        "release": _breaks(_GONE),
        "browse": _breaks(_GONE),
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
        "drain": _breaks("did not answer the drain", slow=True),
        "blocking-prefetch": _WORKS_SLOW,
        "prefetch-2": _WORKS_SLOW,
        **dict.fromkeys(
            ("refused-sender", "blocking-refused", "refused-with-reconnect", "refused-receiver"),
            _MADE,
        ),
        "killed": _lacks("stores nothing"),
    },
}  # fmt: skip

_BROWSING: Final = {
    "browse",
    "blocking-browse",
    "command-browse",
    "browse-settled",
    "browse-part",
    "command-browse-one",
}
_REFUSALS: Final = {
    "refused-sender",
    "blocking-refused",
    "refused-with-reconnect",
    "refused-receiver",
    "refused-by-rights",
    "refused-user-id",
    "refused-dynamic",
}
_FILTERS: Final = {"selector", "command-selector"}
NOT_YET: Final[dict[str, set[str]]] = {
    "ferrymq": set(),
    "rabbitmq-3": {
        *_BROWSING,
        *_REFUSALS,
        *_FILTERS,
        # More than one flow of a link in a pass is answered beyond the credit.
        "send-many",
        "blocking-send-many",
        "prefetch-2",
        "prefetch-10",
        "prefetch-100",
        "blocking-prefetch",
        "command-receive-all",
        # A detached consumer holds its messages until its session ends.
        "close-gives-back",
        # Compact element constructors.
        "arrays-in-annotations",
        "arrays-in-body",
    },
    "rabbitmq-4": {
        *_BROWSING,
        *_REFUSALS,
        *_FILTERS,
        "arrays-in-annotations",
        # `start` asks for a position of ferrymq.
        "stream-first",
        "stream-offset",
        "command-stream-start",
    },
    "proton": {
        *_FILTERS,
        "stream-offset",
        "command-stream-start",
        "stream-next",
        "stream-by-filter",
    },
}


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
    return "not yet" if case in NOT_YET.get(site, ()) else "unexpected"
