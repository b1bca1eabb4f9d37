"""The document of an export: ``rabbitmqctl export_definitions``, or ``GET /api/definitions``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ferrymq_rabbitmq.address_v2 import DEFAULT_VHOST
from ferrymq_rabbitmq.pattern_policies import PatternPolicy, policy_of

Entry = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Omission:
    """Something of a document that has no equal here. `kind` is the word for it, such as ``queue``;
    `vhost` is empty for what is outside of virtual hosts."""

    kind: str
    name: str
    vhost: str
    reason: str

    def line(self) -> str:
        """Return the omission as a line of a report."""
        where = f" in {self.vhost}" if self.vhost else ""
        return f"{self.kind} {self.name!r}{where}: {self.reason}"

    def plain(self) -> dict[str, str]:
        """Return the omission for JSON."""
        return {
            "kind": self.kind,
            "name": self.name,
            "vhost": self.vhost,
            "reason": self.reason,
        }


@dataclass(slots=True)
class HostDefinitions:
    """The part of a document for one virtual host."""

    name: str
    queues: list[Entry] = field(default_factory=list)
    exchanges: list[Entry] = field(default_factory=list)
    bindings: list[Entry] = field(default_factory=list)
    policies: list[PatternPolicy] = field(default_factory=list)
    permissions: list[Entry] = field(default_factory=list)
    topic_permissions: list[Entry] = field(default_factory=list)


@dataclass(slots=True)
class Definitions:
    """A document. `omitted` is what could not be read, or has no equal in any case."""

    version: str = ""
    users: list[Entry] = field(default_factory=list)
    hosts: dict[str, HostDefinitions] = field(default_factory=dict)
    omitted: list[Omission] = field(default_factory=list)

    def host(self, name: str) -> HostDefinitions:
        """Return the part of a virtual host, made if need be."""
        return self.hosts.setdefault(name, HostDefinitions(name))


def parse_definitions(text: str | bytes, vhost: str = "") -> Definitions:
    """Return the definitions of a document. `vhost` is the virtual host of entities that name none,
    as in the export of a single one. Raises ValueError, which says what is wrong."""
    try:
        document = json.loads(text)
    except RecursionError:
        raise ValueError("the definitions are nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"the definitions are no JSON: {error}") from None
    if not isinstance(document, dict):
        raise ValueError("the definitions are no JSON object")
    definitions = Definitions()
    version = document.get("rabbitmq_version", document.get("rabbit_version", ""))
    definitions.version = str(version)
    default = vhost or DEFAULT_VHOST
    for host in _entries(document, "vhosts"):
        name = text_of(host, "name", "vhosts")
        definitions.host(name)
        if host.get("tracing") is True:
            _omit(definitions, "virtual host", name, "", "there is no firehose tracer")
        metadata = host.get("metadata")
        usual = metadata.get("default_queue_type") if isinstance(metadata, dict) else None
        if host.get("default_queue_type", usual) not in (None, "classic", "undefined"):
            reason = "default_queue_type: a queue that clients declare without a type is classic"
            _omit(definitions, "virtual host", name, "", reason)
    for key in ("queues", "exchanges", "bindings", "permissions", "topic_permissions"):
        for entry in _entries(document, key):
            part = definitions.host(_vhost(entry, default))
            getattr(part, key).append(entry)
    for entry in _entries(document, "policies"):
        _add_policy(definitions, _vhost(entry, default), entry, False)
    for entry in _entries(document, "parameters"):
        _read_parameter(definitions, _vhost(entry, default), entry)
    for entry in _entries(document, "global_parameters"):
        name = str(entry.get("name"))
        if name not in ("cluster_name", "internal_cluster_id", "cluster_tags"):
            _omit(definitions, "global parameter", name, "", "only plugins of RabbitMQ read it")
    definitions.users.extend(_entries(document, "users"))
    return definitions


def text_of(entry: Entry, key: str, where: str) -> str:
    """Return a text of an entry. Raises ValueError if it is missing."""
    value = entry.get(key)
    if not isinstance(value, str):
        raise ValueError(f"{where}: {key}: a string is needed")
    return value


def arguments_in_entry(entry: Entry) -> dict[str, object]:
    """Return the arguments of an entry."""
    arguments = entry.get("arguments")
    return {str(k): v for k, v in arguments.items()} if isinstance(arguments, dict) else {}


def flag_of(entry: Entry, key: str, default: bool = False) -> bool:
    """Return a flag of an entry."""
    value = entry.get(key, default)
    return value if isinstance(value, bool) else str(value).lower() == "true"


def _entries(document: Mapping[str, object], key: str) -> Iterator[Entry]:
    found = document.get(key, [])
    if not isinstance(found, list):
        raise ValueError(f"{key}: a list is needed")
    for entry in found:
        if not isinstance(entry, dict):
            raise ValueError(f"{key}: each entry must be an object")
        yield entry


def _vhost(entry: Entry, default: str) -> str:
    named = entry.get("vhost", default)
    return named if isinstance(named, str) else default


def _omit(definitions: Definitions, kind: str, name: str, vhost: str, reason: str) -> None:
    definitions.omitted.append(Omission(kind, name, vhost, reason))


def _add_policy(definitions: Definitions, vhost: str, entry: Entry, operator: bool) -> None:
    try:
        definitions.host(vhost).policies.append(policy_of(entry, operator))
    except ValueError as error:
        _omit(definitions, "policy", str(entry.get("name")), vhost, str(error))


def _read_parameter(definitions: Definitions, vhost: str, entry: Entry) -> None:
    component, name = str(entry.get("component")), str(entry.get("name"))
    value = entry.get("value")
    if component == "operator_policy" and isinstance(value, dict):
        _add_policy(definitions, vhost, {**value, "name": name}, True)
    elif component == "vhost-limits" and isinstance(value, dict):
        for limit in value:
            _omit(
                definitions,
                "limit of a virtual host",
                str(limit),
                vhost,
                "limits are those of the whole broker, in [limits], and nodes.limit",
            )
    elif component in ("shovel", "federation-upstream", "federation-upstream-set"):
        reason = f"the broker has no {component.partition('-')[0]}"
        _omit(definitions, component, name, vhost, reason)
    else:
        _omit(definitions, f"parameter {component}", name, vhost, "only RabbitMQ's plugins read it")
