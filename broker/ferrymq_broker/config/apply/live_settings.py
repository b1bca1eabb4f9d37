"""Which settings can change while the broker runs, and what a change of them means."""

from __future__ import annotations

from typing import Final, TypeVar

from ferrymq_broker.config.apply.differences import Difference, SettingPath
from ferrymq_broker.config.declarations import Tables, VirtualHost
from ferrymq_broker.config.model import Config

_T = TypeVar("_T", bound=Tables)

_TABLES: Final = frozenset(
    ("queue", "topic", "subscription", "stream", "exchange", "alias", "redirect", "rule", "nodes")
)
_SECTIONS: Final = frozenset(("limits", "alarms", "policies", "shutdown", "unknown-hostname"))
# The methods that tokens use are set up once.
_FIXED_SECURITY: Final = ("jwt", "shared-access-key", "tokens")
# Limits that count for the whole broker. Others are those of a connection, from its start on.
_BROKER_LIMITS: Final = frozenset(
    (
        "connections",
        "connections-per-address",
        "connections-per-user",
        "termini-per-user",
        "unfinished-total",
        "total-credit",
    )
)
_STAYS: Final = {
    "queue": "the queue stays, with its messages, until it is deleted by management",
    "topic": "the topic stays, with its subscriptions, until it is deleted by management",
    "stream": "the stream stays, with its records, until it is deleted by management",
    "exchange": "the exchange stays, with its bindings, until it is deleted by management",
    "subscription": "the subscription stays, with its messages, until it is deleted by management",
    "binding": "the binding before stays until it is removed by management",
}


def is_live(path: SettingPath, personal: bool, follows: bool) -> bool:
    """Return whether a setting can change while the broker runs. `personal` is whether the broker
    has a personality, `follows` whether that can take its new settings."""
    if path[0] == "virtual-host":
        # Virtual hosts themselves are made at the start.
        return len(path) > 2 and path[2] in _TABLES and is_live(path[2:], personal, follows)
    if path[:2] == ("nodes", "auto-create"):
        # A personality decides itself which nodes are made.
        return not personal
    if path[0] == "security":
        return path[1] not in _FIXED_SECURITY
    if path[0] == "personality":
        return follows and path[1] != "name"
    return path[0] in _TABLES or path[0] in _SECTIONS or path == ("log", "level")


def note_of(difference: Difference) -> str:
    """Return what a change means that has been applied, beyond its values."""
    path = difference.path[2:] if difference.path[0] == "virtual-host" else difference.path
    if path[0] == "limits" and path[1] not in _BROKER_LIMITS:
        return "for new connections"
    if path[0] == "exchange" and len(path) == 4 and difference.before is not None:
        return _STAYS["binding"]
    if difference.after is not None:
        return ""
    if len(path) == 2 and not (
        isinstance(difference.before, dict) and "pattern" in difference.before
    ):
        return _STAYS.get(path[0], "")
    return ""


def in_force(before: Config, wanted: Config, personal: bool, follows: bool) -> Config:
    """Return `wanted` with the settings of `before` that can only change with a restart."""
    fixed: dict[str, object] = {
        name: getattr(before, name)
        for name in type(before).model_fields
        if name not in _TABLES and name.replace("_", "-") not in _SECTIONS
    }
    fixed["log"] = before.log.model_copy(update={"level": wanted.log.level})
    fixed["security"] = wanted.security.model_copy(
        update={
            key: getattr(before.security, key)
            for key in (name.replace("-", "_") for name in _FIXED_SECURITY)
        }
    )
    if follows:
        fixed["personality"] = wanted.personality
    fixed["virtual_host"] = _hosts(before, wanted, personal)
    fixed["nodes"] = _tables(before, wanted, personal).nodes
    return wanted.model_copy(update=fixed)


def _hosts(before: Config, wanted: Config, personal: bool) -> list[VirtualHost]:
    there = {host.name: host for host in wanted.virtual_host}
    return [
        (
            _tables(host, there[host.name], personal).model_copy(
                update={"hostnames": host.hostnames}
            )
            if host.name in there
            else host
        )
        for host in before.virtual_host
    ]


def _tables(before: _T, wanted: _T, personal: bool) -> _T:
    if not personal:
        return wanted
    nodes = wanted.nodes.model_copy(update={"auto_create": before.nodes.auto_create})
    return wanted.model_copy(update={"nodes": nodes})
