"""Permissions of users as rules that are made while the broker runs.

The rules of one permission have a name that begins with ``permissions/USER/``, and its expressions
as their label. The tags of users have rules ``tags/…``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from ferrymq_broker.config.access import KeptRule
from ferrymq_broker.values.names import DEFAULT_SPACE
from ferrymq_rabbitmq.address_v2 import vhost_of
from ferrymq_rabbitmq.definitions.access_rules import StatedRule, rules_of, rules_of_tags
from ferrymq_rabbitmq.definitions.document import Entry, HostDefinitions, Omission
from ferrymq_rabbitmq.management.request_refused import bad_request, text_in

if TYPE_CHECKING:
    from ferrymq_broker.addresses.address_space import AddressSpace
    from ferrymq_broker.management.access_rules import RuleKeeper
    from ferrymq_broker.nodes.link_terms import Party

PERMISSIONS: Final = ("configure", "write", "read")
_PREFIX: Final = "permissions/"
_TAGS: Final = "tags/"


@dataclass(frozen=True, slots=True)
class PermissionRules:
    """The permissions in one virtual host that are rules of the `keeper`, for a party that changes
    them. The changes raise `ManagementError`."""

    space: AddressSpace
    keeper: RuleKeeper
    party: Party

    def stated(self) -> dict[str, dict[str, str]]:
        """Return the expressions of each user, as they came."""
        found: dict[str, dict[str, str]] = {}
        for rule in self.keeper.kept(self.space.name):
            user = _user_of(rule.name)
            if user:
                found[user] = json.loads(rule.label)
        return found

    def put(
        self, user: str, given: Mapping[str, object], topics: Sequence[Entry] = ()
    ) -> tuple[bool, list[Omission]]:
        """Give a user permissions in place of the earlier ones, with the topic permissions
        `topics`. Return whether there were none, and what has no equal here. Raises
        `RequestRefused`."""
        expressions = {key: text_in(given, key) for key in PERMISSIONS}
        host = HostDefinitions(vhost_of(self.space))
        host.permissions.append({"user": user, **expressions})
        host.topic_permissions.extend(topics)
        rules, omitted = rules_of(host, {user})
        new = user not in self.stated()
        if not rules:
            # A user without any right is known to have none.
            rules = [StatedRule(f"user:{user}", ("*",), may_not=("*",))]
        made = self._kept(f"{_PREFIX}{user}/", rules, json.dumps(expressions))
        self._add([*self._tag_rules(), *made], user)
        return new, omitted

    def delete(self, user: str) -> bool:
        """Take its permissions from a user. Return whether there were any."""
        if user not in self.stated():
            return False
        self._add([], user)
        return True

    def expect_managed(self) -> None:
        """Add the rules for the tags of users, if they are not there."""
        self._add(self._tag_rules(), "")

    def _add(self, made: Sequence[KeptRule], replaced: str) -> None:
        """Add rules that are not there, and remove the permissions of the user `replaced`."""

        def edit(rules: list[KeptRule]) -> list[KeptRule]:
            kept = [rule for rule in rules if not replaced or _user_of(rule.name) != replaced]
            names = {rule.name for rule in kept}
            return [*kept, *(rule for rule in made if rule.name not in names)]

        self.keeper.edit(self.space.name, self.party, edit)

    def _tag_rules(self) -> list[KeptRule]:
        return self._kept(_TAGS, rules_of_tags(self.space.name == DEFAULT_SPACE), "")

    def _kept(self, prefix: str, rules: Sequence[StatedRule], label: str) -> list[KeptRule]:
        try:
            return [
                KeptRule.model_validate(
                    {
                        "name": f"{prefix}{at}",
                        "who": [rule.who],
                        "may": list(rule.may),
                        "may-not": list(rule.may_not),
                        "where": list(rule.where),
                        "virtual-host": self.space.name,
                        "label": label,
                    }
                )
                for at, rule in enumerate(rules, 1)
            ]
        except ValidationError as error:
            raise bad_request(
                f"the permissions cannot be rules: {error.errors()[0]['msg']}"
            ) from None


def _user_of(name: str) -> str:
    """Return the user whose permission the rule of this name is; empty for other rules."""
    if not name.startswith(_PREFIX):
        return ""
    return name.removeprefix(_PREFIX).rpartition("/")[0]
