"""The entities in the table ``[personality]`` of the broker's configuration.

```toml
[personality]
name = "azure"
config = "Config.json"              # of the vendor's emulator, or a list of such files
create-entities = true              # make entities when a client names them first; false,
                                    # or "event-hubs" for event hubs instead of queues and topics

[[personality.queue]]
name = "orders"
lock-duration = "30s"

[[personality.topic]]
name = "news"

[[personality.topic.subscription]]
name = "audit"

[[personality.topic.subscription.rule]]
name = "urgent"
sql = "sys.priority > 6"

[[personality.hub]]
name = "clicks"
partition-count = 4
```
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from ferrymq_broker.addresses.address_space import AddressSpace
from ferrymq_broker.config.errors import ConfigError
from ferrymq_servicebus.declared_entities import DeclaredEntities
from ferrymq_servicebus.emulator_config import read_emulator_config
from ferrymq_servicebus.entities import EntityTemplate, HubTemplate

# The keys of ``[personality]`` that are about entities.
KEYS: Final = ("config", "create-entities", "queue", "topic", "hub")

# The value of ``create-entities`` for event hubs.
HUBS: Final = "event-hubs"

_PLACE: Final = "personality"


def read_entities(
    settings: Mapping[str, object], directory: Path | None = None
) -> DeclaredEntities:
    """Return the entities that the settings declare, in them or in files; names of files are
    relative to `directory`. Other keys than `KEYS` are not looked at. Raises `ConfigError` with
    all mistakes."""
    entities = DeclaredEntities()
    files = settings.get("config", [])
    for file in files if isinstance(files, list) else [files]:
        if not isinstance(file, str | Path) or not str(file):
            raise ConfigError(f"{_PLACE}.config: {file!r:.60} is no name of a file")
        read_emulator_config((directory or Path()) / file, entities)
    made = settings.get("create-entities", True)
    if not isinstance(made, bool) and made != HUBS:
        raise ConfigError(f'{_PLACE}.create-entities: true, false or "{HUBS}" is needed')
    for queue in _tables(settings, "queue", _PLACE):
        entities.add_queue(queue.get("name"), _without(queue), f"{_PLACE}.queue")
    for topic in _tables(settings, "topic", _PLACE):
        _read_topic(topic, entities)
    for hub in _tables(settings, "hub", _PLACE):
        entities.add_hub(hub.get("name"), _without(hub), f"{_PLACE}.hub")
    entities.finish()
    return entities


def declare_entities(
    space: AddressSpace, settings: Mapping[str, object], directory: Path | None = None
) -> DeclaredEntities:
    """Make the declared entities in a virtual host whose stored nodes exist, and let clients make
    others, unless the settings or the broker's configuration switch that off.

    Raises `ConfigError`.
    """
    entities = read_entities(settings, directory)
    made = settings.get("create-entities", True) if space.auto_create is not None else False
    # The plain queues of the broker are no entities.
    space.auto_create = space.auto_create_topic = None
    entities.make(space)
    if made:
        space.templates.append(HubTemplate() if made == HUBS else EntityTemplate())
    return entities


def _read_topic(topic: Mapping[str, object], entities: DeclaredEntities) -> None:
    name = topic.get("name")
    place = f"{_PLACE}.topic"
    policy = entities.add_topic(name, _without(topic, "subscription"), place)
    for subscription in _tables(topic, "subscription", f"{place} {name!r:.100}"):
        if policy is None:
            continue
        inner = f"{place}.subscription"
        rules: list[tuple[str, dict[str, object]]] = []
        for rule in _tables(subscription, "rule", inner):
            rules.append((str(rule.get("name", "")), _without(rule)))
        entities.add_subscription(
            str(name),
            policy,
            subscription.get("name"),
            _without(subscription, "rule"),
            rules,
            inner,
        )


def _tables(table: Mapping[str, object], key: str, place: str) -> Iterator[Mapping[str, object]]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(one, Mapping) for one in value):
        raise ConfigError(f"{place}.{key}: tables are needed, [[{place}.{key}]]")
    yield from value


def _without(table: Mapping[str, object], *keys: str) -> dict[str, object]:
    """Return the settings of an entity: all but its name and the tables in it."""
    return {key: value for key, value in table.items() if key != "name" and key not in keys}
