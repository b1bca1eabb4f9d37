"""``ferrymq definitions import``."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Final

import typer

from ferrymq import ManagementClient
from ferrymq.errors import AmqpError, ManagementError
from ferrymq_broker.cli.admin.session import ask
from ferrymq_broker.cli.admin.tables import print_json
from ferrymq_broker.cli.definitions.report import tell_omissions
from ferrymq_broker.cli.options import DEFAULT_URL, Json, Url
from ferrymq_broker.config.access import AccessRule
from ferrymq_broker.config.apply.differences import plain
from ferrymq_broker.config.declarations import DeclaredNode, Tables
from ferrymq_broker.config.load import load_config
from ferrymq_broker.config.model import DEFAULT_HOST, Config
from ferrymq_broker.config.nodes import policy_attributes
from ferrymq_broker.config.policy_resolution import resolve_policy

_CONFIGURED: Final = "it is a part of the configuration: put it there, and reload"


def import_(
    file: Annotated[
        Path,
        typer.Argument(help="A configuration, .toml or .json, or an export.", show_default=False),
    ],
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Make in a running broker what a configuration declares: users, nodes, bindings, aliases,
    subscriptions and rules. What exists gets the settings of the file; nothing is deleted.

    What was not applied is said, a line for each on standard error."""
    config = load_config(file)
    report = ImportReport()
    if config.security.users:
        ask(url, None, _Import(config, config, DEFAULT_HOST, report).make_users)
    for name in sorted({name for names in config.security.groups.values() for name in names}):
        if name not in config.security.users:
            reason = "it has no password in the file; make the user first, with these groups"
            report.omit("user", name, DEFAULT_HOST, reason)
    hosts: list[tuple[str, Tables]] = [(DEFAULT_HOST, config)]
    hosts += [(host.name, host) for host in config.virtual_host]
    works = [_Import(config, tables, name, report) for name, tables in hosts]
    closed = [work for work in works if not work.declare(url)]
    for work in works:
        ask(url, None, work.put_rules)
    for work in closed:
        # The rules may have opened it.
        work.declare(url, last=True)
    if config.personality.settings:
        report.omit("personality", config.personality.name, DEFAULT_HOST, _CONFIGURED)
    if as_json:
        print_json({"applied": report.applied, "omitted": report.omitted})
        return
    counts = ", ".join(f"{count} {kind}" for kind, count in report.applied.items() if count)
    sys.stdout.write(f"applied: {counts or 'nothing'}\n")
    tell_omissions("not applied", report.omitted)


@dataclass(slots=True)
class ImportReport:
    """How many entities of each kind were applied, and which were not: maps of `kind`, `name`,
    `virtual-host`, `reason`."""

    applied: dict[str, int] = field(default_factory=dict)
    omitted: list[dict[str, object]] = field(default_factory=list)

    def omit(self, kind: str, name: str, host: str, reason: str) -> None:
        """Note something that was not applied."""
        self.omitted.append({"kind": kind, "name": name, "virtual-host": host, "reason": reason})

    def count(self, kind: str) -> None:
        """Count an entity that was applied, or was there already."""
        self.applied[kind] = self.applied.get(kind, 0) + 1


class _Import:
    """The import into one virtual host."""

    def __init__(self, config: Config, tables: Tables, host: str, report: ImportReport) -> None:
        self._config = config
        self._tables = tables
        self._host = host
        self._report = report

    async def make_users(self, management: ManagementClient) -> None:
        """Make the users that have a password."""
        groups = self._config.security.groups_of()
        for name, password in self._config.security.users.items():
            body: dict[str, object] = {
                "password": password.get_secret_value(),
                "groups": sorted(groups.get(name, ())),
            }
            await self._put(management, "user", name, body)

    def declare(self, url: str, last: bool = False) -> bool:
        """Make all but rules. Return false if the virtual host is closed to the user, and report
        that if it is the `last` attempt."""
        default = self._host == DEFAULT_HOST
        try:
            ask(url, None if default else self._host, self._declare)
        except AmqpError as error:
            if default:
                raise
            if last:
                self._report.omit("virtual-host", self._host, self._host, str(error))
            return False
        return True

    async def _declare(self, management: ManagementClient) -> None:
        """Make the nodes, then what needs them."""
        tables = self._tables
        for kind, _, entry in tables.declared():
            await self._put_node(management, kind, entry)
        for alias in tables.alias:
            await self._put(management, "alias", alias.name, {"address": alias.to})
        for exchange in tables.exchange:
            for binding in exchange.binding:
                body: dict[str, object] = {
                    "exchange": exchange.address,
                    "destination": binding.to,
                    "key": binding.key,
                    "arguments": dict(binding.arguments),
                }
                name = f"{exchange.address} -> {binding.to} ({binding.key})"
                await self._try(management, "CREATE", "binding", None, body, name)
        await self._put_subscriptions(management)
        for redirect in tables.redirect:
            self._report.omit("redirect", redirect.name, self._host, _CONFIGURED)

    async def _put_node(self, management: ManagementClient, kind: str, entry: DeclaredNode) -> None:
        if entry.name is None:
            self._report.omit(f"pattern of {kind}s", entry.address, self._host, _CONFIGURED)
            return
        policy = resolve_policy(kind, entry, self._config.policies)
        await self._put(management, kind, entry.name, policy_attributes(policy))

    async def _put_subscriptions(self, management: ManagementClient) -> None:
        for entry in self._tables.subscription:
            name = f"{entry.topic}::{entry.name}"
            if not await self._try(management, "CREATE", "subscription", name, {}, name):
                continue
            told = (await management.request("LIST-RULES", "subscription", name)).map()
            rules = told["rules"]
            assert isinstance(rules, list)
            there = {str(rule["name"]): rule for rule in rules}
            for rule in entry.rule:
                wanted = {"name": rule.name, **rule.described()}
                if there.get(rule.name) == wanted:
                    self._report.count("subscription-rule")
                    continue
                if rule.name in there:
                    body: dict[str, object] = {"rule": rule.name}
                    await management.request("REMOVE-RULE", "subscription", name, body)
                body = {"rule": rule.name, **rule.described()}
                label = f"{name} {rule.name}"
                await self._try(
                    management, "ADD-RULE", "subscription", name, body, label, "subscription-rule"
                )

    async def put_rules(self, management: ManagementClient) -> None:
        """Make the rules in their order, from the default virtual host. One that would take the
        right to manage the broker from this user is tried again when the others are there."""
        pending = [
            (at, rule.name or f"imported/{at}", rule)
            for at, rule in enumerate(self._tables.rule, 1)
        ]
        done: dict[int, str] = {}
        while pending:
            left: list[tuple[int, str, AccessRule]] = []
            reasons: dict[int, str] = {}
            for at, name, rule in pending:
                body = _rule_body(rule)
                if self._host != DEFAULT_HOST:
                    body["virtual-host"] = self._host
                body["before"] = next((done[next_] for next_ in sorted(done) if next_ > at), "")
                try:
                    await _create_or_update(management, "rule", name, body)
                except ManagementError as error:
                    left.append((at, name, rule))
                    reasons[at] = error.description
                else:
                    done[at] = name
                    self._report.count("rule")
            if len(left) == len(pending):
                for at, name, _ in left:
                    self._report.omit("rule", name, self._host, reasons[at])
                return
            pending = left

    async def _put(
        self, management: ManagementClient, kind: str, name: str, body: dict[str, object]
    ) -> None:
        """Make an entity, or give it these attributes if it is there."""
        try:
            await _create_or_update(management, kind, name, body)
        except ManagementError as error:
            self._report.omit(kind, name, self._host, error.description)
        else:
            self._report.count(kind)

    async def _try(
        self,
        management: ManagementClient,
        operation: str,
        kind: str,
        name: str | None,
        body: dict[str, object],
        label: str,
        counted: str = "",
    ) -> bool:
        try:
            await management.request(operation, kind, name, body)
        except ManagementError as error:
            self._report.omit(counted or kind, label, self._host, error.description)
            return False
        self._report.count(counted or kind)
        return True


async def _create_or_update(
    management: ManagementClient, kind: str, name: str, body: dict[str, object]
) -> None:
    """Make an entity, or change it if it is there with other attributes. Raises
    `ManagementError`."""
    try:
        await management.request("CREATE", kind, name, body)
    except ManagementError as error:
        if error.status != HTTPStatus.CONFLICT:
            raise
        try:
            place = {key: body[key] for key in ("virtual-host",) if key in body}
            await management.request("READ", kind, name, place)
        except ManagementError:
            raise error from None
        await management.request("UPDATE", kind, name, body)


def _rule_body(rule: AccessRule) -> dict[str, object]:
    stated = plain(rule)
    assert isinstance(stated, dict)
    return {key: value for key, value in stated.items() if key != "name"}
