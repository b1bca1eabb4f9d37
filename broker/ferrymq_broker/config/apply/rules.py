"""Access rules of the configuration in the form that the broker evaluates."""

from __future__ import annotations

from typing import Final

from ferrymq_broker.access.patterns import AddressPattern
from ferrymq_broker.access.rules import ANONYMOUS, ANYBODY, CLAIM, GROUP, KEY, USER, Rule, Subject
from ferrymq_broker.config import access
from ferrymq_broker.config.access import AccessRule, read_subject, rights_of
from ferrymq_broker.config.tokens import SharedAccessKey

_KINDS: Final = {
    access.EVERY: ANYBODY,
    access.NOBODY: ANONYMOUS,
    access.USER: USER,
    access.GROUP: GROUP,
    access.CLAIM: CLAIM,
    access.KEY: KEY,
}


def make_rule(stated: AccessRule) -> Rule:
    """Return the rule of a ``[[rule]]`` table."""
    subjects = [read_subject(text) for text in stated.who]
    return Rule(
        [Subject(_KINDS[kind], name, value) for kind, name, value in subjects],
        rights_of(stated.may),
        rights_of(stated.may_not),
        [AddressPattern(text) for text in stated.where],
    )


def make_key_rule(key: SharedAccessKey, entity: str) -> Rule | None:
    """Return the rule for the own rights of a shared access key; None if the key has none. `entity`
    is the native address of its entity, if it has one."""
    stated = key.access_rule(entity)
    return None if stated is None else make_rule(stated)
