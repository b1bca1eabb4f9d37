"""Explains which node a link to an address would get, and which line decides it; needs no
broker."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from ferrymq_broker.addresses.templates import PatternTemplate
from ferrymq_broker.config.declarations import DeclaredNode, Tables
from ferrymq_broker.config.errors import ConfigError, Location
from ferrymq_broker.config.model import DEFAULT_HOST, Config
from ferrymq_broker.config.nodes import kind_of, policy_attributes
from ferrymq_broker.config.policy_resolution import auto_created, resolve_policy
from ferrymq_broker.config.units import format_duration, format_size
from ferrymq_broker.nodes.queues.sub_queues import sub_queue_policy
from ferrymq_broker.values.names import DYNAMIC, PART
from ferrymq_broker.values.policy import (
    ExchangePolicy,
    NodePolicy,
    QueuePolicy,
    StreamPolicy,
    TopicPolicy,
)

_DURATIONS: Final = ("message-ttl", "duplicate-window", "auto-delete", "max-age")
_SIZES: Final = ("max-bytes", "segment-bytes")
_DEFAULTS: Final[tuple[NodePolicy, ...]] = (
    QueuePolicy(),
    TopicPolicy(),
    StreamPolicy(),
    ExchangePolicy(),
)


@dataclass(frozen=True, slots=True)
class Explanation:
    """The node that an address names, and the place in the file that decides it.

    `found` is ``declared``, ``pattern``, ``auto-create``, ``redirect``, ``broker`` (its own
    services) or ``nothing``. `node` is the address without aliases and part. `location` is the
    place in the file, `followed` are the places of the aliases that were followed. `owner` is the
    address of the queue or the subscription whose sub-queue it is.
    """

    address: str
    node: str
    found: str
    part: str = ""
    pattern: str = ""
    policy: NodePolicy | None = None
    location: Location = ()
    followed: list[tuple[str, Location]] = field(default_factory=list)
    elsewhere: str = ""
    owner: str = ""


def tables_of(config: Config, host: str) -> tuple[Tables, Location]:
    """Return the tables of the virtual host of this name, and their place. Raises `ConfigError`."""
    if host == DEFAULT_HOST:
        return config, ()
    for at, virtual in enumerate(config.virtual_host):
        if host.lower() in virtual.all_hostnames():
            return virtual.model_copy(update={"nodes": config.nodes_of(virtual)}), (
                "virtual-host",
                at,
            )
    raise ConfigError(f"there is no virtual host {host!r}")


def explain(config: Config, address: str, host: str = DEFAULT_HOST) -> Explanation:
    """Explain which node a link to `address` would get.

    Raises `ConfigError` if there is no such virtual host.
    """
    tables, place = tables_of(config, host)
    followed: list[tuple[str, Location]] = []
    node = _follow(tables, address, place, followed)
    owned = _look_up_owner(config, tables, place, node)
    if owned is not None:
        return replace(owned, address=address, followed=followed)
    found = _look_up(config, tables, place, node)
    part = ""
    if found.found != "declared" and node.rfind(PART) > 0:
        name, _, part = node.rpartition(PART)
        node = _follow(tables, name, place, followed)
        found = _look_up(config, tables, place, node)
        if isinstance(found.policy, QueuePolicy):
            # A queue has no parts.
            node, part = f"{node}{PART}{part}", ""
            found = Explanation(node, node, "nothing")
    return Explanation(
        address,
        found.node,
        found.found,
        part,
        found.pattern,
        found.policy,
        found.location,
        followed,
        found.elsewhere,
    )


def _follow(
    tables: Tables, address: str, place: Location, followed: list[tuple[str, Location]]
) -> str:
    targets = {alias.name: (alias.to, at) for at, alias in enumerate(tables.alias)}
    while address in targets:
        target, at = targets[address]
        followed.append((address, (*place, "alias", at)))
        address = target
    return address


def _look_up(config: Config, tables: Tables, place: Location, node: str) -> Explanation:
    patterns = PatternTemplate()
    shapes: dict[str, tuple[NodePolicy, Location]] = {}
    for kind, at, entry in tables.declared():
        if entry.name == node:
            policy = resolve_policy(kind, entry, config.policies)
            return Explanation(
                node, node, "declared", "", "", policy, _place(place, kind, at, entry)
            )
        if entry.pattern is not None:
            policy = resolve_policy(kind, entry, config.policies)
            patterns.add(entry.pattern, policy)
            shapes[entry.pattern] = policy, _place(place, kind, at, entry)
    for at, redirect in enumerate(tables.redirect):
        if redirect.name == node:
            there = f"{redirect.host}:{redirect.port}, {redirect.address or redirect.name}"
            location = (*place, "redirect", at)
            return Explanation(node, node, "redirect", location=location, elsewhere=there)
    if node.startswith("$"):
        return Explanation(node, node, "broker")
    if not node or node.startswith(DYNAMIC):
        return Explanation(node, node, "nothing")
    match = patterns.match(node)
    if match is not None:
        pattern = match[0].text
        policy, location = shapes[pattern]
        return Explanation(node, node, "pattern", "", pattern, policy, location)
    made, _ = auto_created(tables.nodes)
    location = (*place, "nodes", "auto-create")
    if made is None:
        return Explanation(node, node, "nothing", location=location)
    return Explanation(node, node, "auto-create", "", "", made, location)


def _look_up_owner(
    config: Config, tables: Tables, place: Location, node: str
) -> Explanation | None:
    """Return the explanation of a sub-queue; None if the address is not that of one."""
    if any(entry.name == node for _, _, entry in tables.declared()):
        return None
    cut = node.find("/", 1)
    while cut > 0:
        owner, name = node[:cut], node[cut + 1 :]
        topic, _, part = owner.rpartition(PART)
        found = _look_up(config, tables, place, topic or owner)
        policy = found.policy
        if part and isinstance(policy, TopicPolicy):
            policy = policy.subscription
        if isinstance(policy, QueuePolicy) and name in policy.sub_queues:
            return replace(found, node=node, policy=sub_queue_policy(policy), owner=owner)
        cut = node.find("/", cut + 1)
    return None


def _place(place: Location, kind: str, at: int, entry: DeclaredNode) -> Location:
    return (*place, kind, at, "pattern" if entry.name is None else "name")


def friendly_settings(policy: NodePolicy) -> dict[str, str]:
    """Return the settings of a policy that differ from the defaults, in units for people."""
    default = next(each for each in _DEFAULTS if kind_of(each) == kind_of(policy))
    return _differences(policy_attributes(policy), policy_attributes(default), "")


def _differences(
    settings: dict[str, object], defaults: dict[str, object], before: str
) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in settings.items():
        usual = defaults[key]
        if isinstance(value, dict) and isinstance(usual, dict):
            found |= _differences(value, usual, f"{key}.")
        elif value != usual:
            found[before + key] = _friendly(key, value)
    return found


def _friendly(key: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        if key in _DURATIONS:
            return format_duration(value) if value >= 0 else "never"
        if key in _SIZES:
            return format_size(value)
    return str(value)
