"""Access rules in the configuration file: ``[[rule]]``."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import Annotated, Final, NamedTuple, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from ferrymq_broker.config.errors import ConfigMistake, ConfigMistakes, Location
from ferrymq_broker.config.section import StrictSection
from ferrymq_broker.values.names import DEFAULT_SPACE, MAX_ADDRESS_LENGTH, USER_PLACEHOLDER
from ferrymq_broker.values.rights import ALL, RIGHTS

# Stands for every client in `who`, and for all rights in `may` and `may-not`.
EVERY: Final = "*"
NOBODY: Final = "anonymous"
USER: Final = "user"
GROUP: Final = "group"
CLAIM: Final = "claim"
KEY: Final = "key"
_KINDS: Final = (USER, GROUP, CLAIM, KEY)
# Kinds of subjects that need users in [security].
_PROVED: Final = (USER, GROUP, CLAIM)
_MOST: Final = 1000
# The names that other brokers give to the rights.
_ELSEWHERE: Final = {
    "read": "receive",
    "consume": "receive",
    "listen": "receive",
    "subscribe": "receive",
    "write": "send",
    "publish": "send",
    "produce": "send",
    "peek": "browse",
    "configure": "manage",
    "admin": "manage",
    "remove": "delete",
}
_BRACES: Final = re.compile(r"\{[^{}]*\}")


class RuleSubject(NamedTuple):
    """A kind of client that a rule names: `EVERY`, `NOBODY`, or one of `USER`, `GROUP`, `CLAIM` and
    `KEY` with a name. `value` is the value of a claim; ``""`` for any."""

    kind: str
    name: str = ""
    value: str = ""


def read_subject(text: str) -> RuleSubject:
    """Return the subject that the text names. Raises ValueError if the text names no subject."""
    if text == EVERY:
        return RuleSubject(EVERY)
    if text == NOBODY:
        return RuleSubject(NOBODY)
    kind, colon, name = text.partition(":")
    if not colon:
        if kind.strip().lower() in _KINDS:
            raise ValueError(f"{text!r} needs a name; write {kind.strip().lower()}:NAME")
        close = difflib.get_close_matches(kind.lower(), (NOBODY,), n=1, cutoff=0.75)
        hint = f"did you mean {close[0]!r}?" if close else f"did you mean 'user:{text[:100]}'?"
        raise ValueError(f"{text[:100]!r} names no client; {hint}")
    if kind not in _KINDS:
        close = difflib.get_close_matches(kind.strip().lower(), _KINDS, n=1)
        hint = f"did you mean '{close[0]}:'?" if close else f"there are {', '.join(_KINDS)}"
        raise ValueError(f"{text[:100]!r} names no client; {hint}")
    value = ""
    if kind == "claim":
        name, equals, value = name.partition("=")
        if equals and not value:
            raise ValueError(f"{text[:100]!r} has no value; leave out the = for any value")
    if not name:
        raise ValueError(f"{text[:100]!r} needs a name; write {kind}:NAME")
    return RuleSubject(kind, name, value)


def _check_subject(text: str) -> str:
    read_subject(text)
    return text


def _check_right(name: str) -> str:
    if name == EVERY or name in RIGHTS:
        return name
    said = name.lower().replace("_", "-")
    close = difflib.get_close_matches(said, RIGHTS, n=1)
    if said in _ELSEWHERE:
        close = [_ELSEWHERE[said]]
    hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(RIGHTS)}, {EVERY}"
    raise ValueError(f"{name[:100]!r} is not a right; {hint}")


def _check_pattern(text: str) -> str:
    for found in _BRACES.findall(text):
        if found != USER_PLACEHOLDER:
            raise ValueError(f"{found[:100]!r} is not a placeholder; use {USER_PLACEHOLDER}")
    return text


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


_Who = Annotated[str, Field(max_length=1024), AfterValidator(_check_subject)]
_Right = Annotated[str, AfterValidator(_check_right)]
_Where = Annotated[
    str, Field(min_length=1, max_length=MAX_ADDRESS_LENGTH), AfterValidator(_check_pattern)
]
_OneOrMore = Field(min_length=1, max_length=_MOST)


class AccessRule(StrictSection):
    """``[[rule]]``: the rights that `who` has, or does not have, at the addresses `where`.

    Each key takes one value or a list. The first rule that names the right, the client and the
    address decides.
    """

    # A name for people, and a text of the program that has made the rule.
    name: Annotated[str, Field(max_length=255)] = ""
    label: Annotated[str, Field(max_length=4096)] = ""
    who: Annotated[list[_Who], _OneOrMore, BeforeValidator(_as_list)]
    may: Annotated[list[_Right], Field(max_length=_MOST), BeforeValidator(_as_list)] = Field(
        default=[]
    )
    may_not: Annotated[list[_Right], Field(max_length=_MOST), BeforeValidator(_as_list)] = Field(
        default=[]
    )
    where: Annotated[list[_Where], _OneOrMore, BeforeValidator(_as_list)]

    @model_validator(mode="after")
    def _check(self) -> Self:
        given = rights_of(self.may)
        refused = rights_of(self.may_not)
        if not given and not refused:
            raise ValueError("set may or may-not")
        both = [name for name, bit in RIGHTS.items() if given & refused & bit]
        if both:
            raise ValueError(
                f"{', '.join(both)} in both may and may-not; "
                "for an exception, write two rules: the first rule that matches decides"
            )
        if all(who == NOBODY for who in self.who) and all(
            USER_PLACEHOLDER in text for text in self.where
        ):
            raise ValueError(
                f"the rule matches no client: anonymous clients have no name for {USER_PLACEHOLDER}"
            )
        return self

    def needs_names(self) -> bool:
        """Return whether the rule tells users apart.

        Such a rule needs clients that prove their user names.
        """
        kinds = [read_subject(who).kind for who in self.who]
        if any(kind in _PROVED for kind in kinds) or any(
            USER_PLACEHOLDER in text for text in self.where
        ):
            return True
        # A client that is refused because it gives no user name can give any name.
        return NOBODY in kinds and bool(self.may_not)


class KeptRule(AccessRule):
    """``[[rule]]`` in the file of rules that are made while the broker runs. The name is unique in
    its virtual host. The order of the rules is that of the file."""

    name: Annotated[str, Field(min_length=1, max_length=255)]
    virtual_host: str = DEFAULT_SPACE


class KeptRules(StrictSection):
    """The whole file of rules."""

    rule: list[KeptRule] = Field(default=[])

    @model_validator(mode="after")
    def _check(self) -> Self:
        known: dict[tuple[str, str], int] = {}
        mistakes: list[ConfigMistake] = []
        for at, rule in enumerate(self.rule):
            first = known.setdefault((rule.virtual_host, rule.name), at)
            if first != at:
                reason = f"two rules have the name {rule.name!r}"
                mistakes.append(ConfigMistake(("rule", at, "name"), reason, ("rule", first)))
        if mistakes:
            raise ConfigMistakes(mistakes)
        return self


def check_named(
    names_somebody: bool, rules: Sequence[AccessRule], place: Location
) -> list[ConfigMistake]:
    """Return the mistakes of rules that tell users apart although user names are not checked.

    `names_somebody` is whether ``[security]`` says who may connect, `place` the table of the
    virtual host.
    """
    if names_somebody:
        return []
    return [
        ConfigMistake(
            (*place, "rule", at),
            "the rule tells users apart, but [security] names no users, so clients on this machine "
            "may give any name. Set users, users-file, certificate-rule or jwt in [security]. "
            "Rules for '*', 'anonymous' and 'key:NAME' need no users",
        )
        for at, rule in enumerate(rules)
        if rule.needs_names()
    ]


def rights_of(names: list[str]) -> int:
    """Return the rights with these names, as bits."""
    bits = 0
    for name in names:
        bits |= ALL if name == EVERY else RIGHTS[name]
    return bits
