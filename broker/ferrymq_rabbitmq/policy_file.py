"""The file of the policies that are made while the broker runs: TOML, replaced as a whole.

It has tables ``[[policy]]`` with the keys of ``[[personality.policy]]``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from ferrymq_broker.config.load import read_toml
from ferrymq_broker.config.toml_text import toml_table
from ferrymq_broker.security.file_replacement import locked, replace_file
from ferrymq_rabbitmq.address_v2 import DEFAULT_VHOST
from ferrymq_rabbitmq.pattern_policies import PatternPolicies, PatternPolicy, read_policies

_HEAD = "# Policies, written by the broker. They add to those of the configuration."


class PolicyFile:
    """The file of the policies of all virtual hosts."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, vhost: str) -> PatternPolicies:
        """Return the policies of a virtual host; none if there is no file. Raises ValueError for a
        file that cannot be used."""
        return read_policies(self._tables(), vhost)

    def edit(self, vhost: str, edit: Callable[[PatternPolicies], object]) -> None:
        """Change the policies of a virtual host by `edit`, and write the file. Raises ValueError
        for a file that cannot be used, and `OSError`."""
        path = self._path.resolve()
        with locked(path.parent):
            tables = self._tables()
            policies = read_policies(tables, vhost)
            edit(policies)
            others = [each for each in tables if each.get("virtual-host", DEFAULT_VHOST) != vhost]
            own = [policy_table(each, vhost) for each in policies.everything()]
            lines = [_HEAD]
            for table in (*others, *own):
                lines += toml_table("[[policy]]", table)
            replace_file(path, ("\n".join(lines) + "\n").encode())

    def _tables(self) -> list[Mapping[str, object]]:
        if not self._path.exists():
            return []
        said, _ = read_toml(self._path)
        tables = said.get("policy", [])
        if not isinstance(tables, list) or not all(isinstance(each, dict) for each in tables):
            raise ValueError(f"{self._path}: [[policy]] must be tables")
        return tables


def policy_table(policy: PatternPolicy, vhost: str) -> dict[str, object]:
    """Return a policy as a table of the configuration."""
    described: dict[str, object] = {"name": policy.name}
    if vhost != DEFAULT_VHOST:
        described["virtual-host"] = vhost
    described["pattern"] = policy.pattern
    described["apply-to"] = policy.apply_to
    described["priority"] = policy.priority
    if policy.operator:
        described["operator"] = True
    described["definition"] = dict(policy.definition)
    return described
