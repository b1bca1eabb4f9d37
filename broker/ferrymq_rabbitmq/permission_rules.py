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
from ferrymq_broker.management.errors import ManagementError
from ferrymq_broker.values.names import DEFAULT_SPACE
from ferrymq_rabbitmq.address_v2 import vhost_of
from ferrymq_rabbitmq.definitions.access_rules import StatedRule, rules_of, rules_of_tags
from ferrymq_rabbitmq.definitions.document import Entry, HostDefinitions, Omission
from ferrymq_rabbitmq.management.request_refused import RequestRefused, bad_request, text_in

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

    def put(self, user: str, given: Mapping[str, object]) -> bool:
        """Give a user permissions in place of the earlier ones. Return whether there were none.
        Raises `RequestRefused`, also for expressions that have no equal patterns."""
        new = user not in self.stated()
        made, omitted = self._made(user, given, ())
        if omitted:
            raise bad_request("; ".join(omission.reason for omission in omitted))
        self._replace({user: made})
        return new

    def import_from(self, part: HostDefinitions) -> tuple[int, list[Omission]]:
        """Give users the permissions of a document, with their topic permissions. Return how many
        users there were, and what is wrong. What has no equal is left out."""
        made: dict[str, list[KeptRule]] = {}
        omitted: list[Omission] = []
        for entry in part.permissions:
            user = str(entry.get("user"))
            topics = [each for each in part.topic_permissions if each.get("user") == user]
            try:
                made[user] = self._made(user, entry, topics)[0]
            except RequestRefused as refused:
                omitted.append(Omission("permission", user, part.name, refused.description))
        try:
            self._replace(made)
        except ManagementError as error:
            return 0, [Omission("permissions", "", part.name, error.description)]
        return len(made), omitted

    def _made(
        self, user: str, given: Mapping[str, object], topics: Sequence[Entry]
    ) -> tuple[list[KeptRule], list[Omission]]:
        """Return the rules for the permissions of a user, and what has no equal. Raises
        `RequestRefused`."""
        expressions = {key: text_in(given, key) for key in PERMISSIONS}
        host = HostDefinitions(vhost_of(self.space))
        host.permissions.append({"user": user, **expressions})
        host.topic_permissions.extend(topics)
        rules, omitted = rules_of(host, {user})
        if not rules:
            # A user without any right is known to have none.
            rules = [StatedRule(f"user:{user}", ("*",), may_not=("*",))]
        return self._kept(f"{_PREFIX}{user}/", rules, json.dumps(expressions)), omitted

    def delete(self, user: str) -> bool:
        """Take its permissions from a user. Return whether there were any."""
        if user not in self.stated():
            return False
        self._replace({user: []}, tags=False)
        return True

    def expect_managed(self) -> None:
        """Add the rules for the tags of users, if they are not there."""
        self._replace({})

    def _replace(self, made: Mapping[str, Sequence[KeptRule]], tags: bool = True) -> None:
        """Replace the rules of users, in their places; new ones come last, after those for
        `tags`."""

        def edit(rules: list[KeptRule]) -> list[KeptRule]:
            left = dict(made)
            kept: list[KeptRule] = []
            for rule in rules:
                user = _user_of(rule.name)
                if user not in made:
                    kept.append(rule)
                elif user in left:
                    kept += left.pop(user)
            names = {rule.name for rule in kept}
            if tags:
                kept += [rule for rule in self._tag_rules() if rule.name not in names]
            return [*kept, *(rule for rules in left.values() for rule in rules)]

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
