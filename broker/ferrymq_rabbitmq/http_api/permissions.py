"""Access rules told as RabbitMQ's permissions: regular expressions for names.

Rules can say more than permissions. What is told is exact for the rights to create, to send and to
receive at queues and exchanges by their names.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

from ferrymq_broker.access.identity import UserIdentity
from ferrymq_broker.access.rules import Rule, bind_rules
from ferrymq_broker.values.names import DYNAMIC, PART, USER_PLACEHOLDER
from ferrymq_broker.values.rights import CREATE, RECEIVE, SEND
from ferrymq_rabbitmq.address_v2 import EXCHANGES

NOTHING: Final = "^$"
EVERYTHING: Final = ".*"
_RIGHTS: Final = {"configure": CREATE, "write": SEND, "read": RECEIVE}


def permissions_of(rules: list[Rule] | None, identity: UserIdentity) -> dict[str, str]:
    """Return the expressions of a user by the rules of a virtual host; None: everything is
    allowed."""
    if rules is None:
        return dict.fromkeys(_RIGHTS, EVERYTHING)
    bound = bind_rules(rules, identity).rules
    return {name: _expression(bound, right, identity) for name, right in _RIGHTS.items()}


def _expression(rules: list[Rule], right: int, identity: UserIdentity) -> str:
    allowed: list[str] = []
    refused: list[str] = []
    for rule in rules:
        names = [name for pattern in rule.where for name in _names(pattern.text, identity)]
        if rule.may_not & right:
            refused += names
        elif rule.may & right:
            # Of all rules for a name the first one decides.
            unless = f"(?!(?:{'|'.join(refused)})$)" if refused else ""
            allowed += [f"{unless}{name}" for name in names]
    if not allowed:
        return NOTHING
    unique = list(dict.fromkeys(allowed))
    return EVERYTHING if EVERYTHING in unique else f"^(?:{'|'.join(unique)})$"


def _names(pattern: str, identity: UserIdentity) -> list[str]:
    """Return the expression for the names of a pattern; none for one of something else."""
    if PART in pattern or pattern.startswith(("$", DYNAMIC)):
        return []
    text = pattern.removeprefix(EXCHANGES)
    if text != pattern:
        text = unquote(text)
    text = text.replace(USER_PLACEHOLDER, identity.user or "")
    return ["".join({"*": ".*", "?": "."}.get(char, re.escape(char)) for char in text)]
