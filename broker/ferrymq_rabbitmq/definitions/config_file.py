"""The configuration of a broker that has what a plan has."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from ferrymq_broker.config.apply.stated_settings import stated_settings
from ferrymq_broker.config.nodes import kind_of
from ferrymq_broker.config.section import kebab
from ferrymq_broker.config.toml_text import toml_table
from ferrymq_broker.values.policy import ExchangePolicy
from ferrymq_rabbitmq.address_v2 import DEFAULT_VHOST, exchange_address
from ferrymq_rabbitmq.definitions.access_rules import StatedRule
from ferrymq_rabbitmq.definitions.plan import HostPlan, ImportPlan, PlannedBinding
from ferrymq_rabbitmq.policy_file import policy_table
from ferrymq_rabbitmq.predeclared import PREDECLARED


def config_text(plan: ImportPlan, users_file: Path | None) -> str:
    """Return the text of a configuration file (TOML). `users_file` is the file of the users, as the
    configuration names it."""
    lines = [f"# Made by ferrymq import-definitions, from RabbitMQ {plan.version or '?'}."]
    lines += toml_table("[personality]", {"name": "rabbitmq"})
    for host in plan.hosts:
        for policy in host.policies:
            lines += toml_table("[[personality.policy]]", policy_table(policy, host.vhost))
    if users_file is not None:
        lines += toml_table("[security]", {"users-file": str(users_file)})
    # The tables of the default virtual host come first: those of another one end them.
    for host in sorted(plan.hosts, key=lambda host: host.vhost != DEFAULT_VHOST):
        prefix = ""
        if host.vhost != DEFAULT_VHOST:
            lines += toml_table("[[virtual-host]]", {"name": host.space})
            prefix = "virtual-host."
        _nodes(lines, prefix, host)
        for rule in host.rules:
            if users_file is not None:
                lines += toml_table(f"[[{prefix}rule]]", _rule(rule))
    return "\n".join(lines) + "\n"


def _nodes(lines: list[str], prefix: str, host: HostPlan) -> None:
    for queue in host.queues:
        kind = kind_of(queue.policy)
        settings = {"name": queue.name, **stated_settings(queue.policy)}
        lines += toml_table(f"[[{prefix}{kind}]]", settings)
    bindings: dict[str, list[PlannedBinding]] = {}
    for binding in host.bindings:
        bindings.setdefault(binding.source, []).append(binding)
    known = {node.name: node.policy for node in host.exchanges}
    led_to = {binding.destination for binding in host.bindings}
    led_to |= {getattr(node.policy, "alternate", "") for node in host.exchanges}
    for name, type in PREDECLARED.items():
        # The other ones are made after the nodes of the file.
        if name in bindings or exchange_address(name) in led_to:
            known[name] = ExchangePolicy(type=type)
    for name, policy in known.items():
        settings = {"name": exchange_address(name), **stated_settings(policy)}
        lines += toml_table(f"[[{prefix}exchange]]", settings)
        for binding in bindings.get(name, ()):
            bound: dict[str, object] = {"to": binding.destination, "key": binding.key}
            if binding.arguments:
                bound["arguments"] = dict(binding.arguments)
            lines += toml_table(f"[[{prefix}exchange.binding]]", bound)


def _rule(rule: StatedRule) -> dict[str, object]:
    stated: dict[str, object] = {}
    for field in fields(rule):
        value = getattr(rule, field.name)
        if value:
            stated[kebab(field.name)] = list(value) if isinstance(value, tuple) else value
    return stated
