"""The configuration of the vendor's emulators, ``Config.json``, as it is.

That of Service Bus has queues and topics under ``UserConfig.Namespaces``, that of Event Hubs has
hubs under ``UserConfig.NamespaceConfig``. Both may be in one file. There is one namespace: the
virtual host. Unknown keys are mistakes; ``Logging`` is ignored.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from ferrymq_broker.config.errors import ConfigError
from ferrymq_servicebus.declared_entities import DeclaredEntities
from ferrymq_servicebus.entities import EntityError

# The fields of a correlation filter, and their names in the broker.
_CORRELATION: Final = {
    "contenttype": "content-type",
    "correlationid": "correlation-id",
    "label": "subject",
    "subject": "subject",
    "messageid": "message-id",
    "replyto": "reply-to",
    "replytosessionid": "reply-to-group-id",
    "sessionid": "group-id",
    "to": "to",
}
_PROPERTIES: Final = ("properties", "applicationproperties")
_IGNORED: Final = ("logging", "loggingconfig")


def read_emulator_config(path: Path, entities: DeclaredEntities) -> None:
    """Add the entities of a file. Mistakes in them are collected in `entities`. Raises
    `ConfigError` if the file cannot be read."""
    try:
        text = path.read_text("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: it is not in UTF-8") from error
    try:
        document = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{path}: it is no JSON: {error}") from error
    except RecursionError as error:
        raise ConfigError(f"{path}: it is nested too deeply") from error
    try:
        _read(document, str(path), entities)
    except EntityError as error:
        entities.mistakes.append(str(error))


def _read(document: object, where: str, entities: DeclaredEntities) -> None:
    for key, config in _items(document, where):
        if key.lower() != "userconfig":
            raise EntityError(f"{where}: unknown key {key[:100]!r}; 'UserConfig' is needed")
        for inner, value in _items(config, f"{where}: UserConfig"):
            if inner.lower() == "namespaces":
                for namespace, place in _listed(value, f"{where}: UserConfig.Namespaces"):
                    _read_namespace(namespace, place, where, entities)
            elif inner.lower() == "namespaceconfig":
                for namespace, place in _listed(value, f"{where}: UserConfig.NamespaceConfig"):
                    _read_hubs(namespace, place, where, entities)
            elif inner.lower() not in _IGNORED:
                raise EntityError(f"{where}: UserConfig: unknown key {inner[:100]!r}")


def _read_namespace(
    namespace: Mapping[str, object], place: str, where: str, entities: DeclaredEntities
) -> None:
    _expect(namespace, place, ("name", "queues", "topics"))
    for queue, here in _listed(_get(namespace, "queues"), f"{place}.Queues"):
        _expect(queue, here, ("name", "properties"))
        entities.add_queue(_get(queue, "name"), _settings(queue, here), where)
    for topic, here in _listed(_get(namespace, "topics"), f"{place}.Topics"):
        _read_topic(topic, here, where, entities)


def _read_topic(
    topic: Mapping[str, object], place: str, where: str, entities: DeclaredEntities
) -> None:
    _expect(topic, place, ("name", "properties", "subscriptions"))
    name = _get(topic, "name")
    policy = entities.add_topic(name, _settings(topic, place), where)
    if policy is None:
        return
    for subscription, here in _listed(_get(topic, "subscriptions"), f"{place}.Subscriptions"):
        _expect(subscription, here, ("name", "properties", "rules"))
        try:
            rules = [
                read_rule(rule, at)
                for rule, at in _listed(_get(subscription, "rules"), f"{here}.Rules")
            ]
        except EntityError as error:
            entities.mistakes.append(str(error))
            continue
        entities.add_subscription(
            str(name),
            policy,
            _get(subscription, "name"),
            _settings(subscription, here),
            rules,
            where,
        )


def _read_hubs(
    namespace: Mapping[str, object], place: str, where: str, entities: DeclaredEntities
) -> None:
    _expect(namespace, place, ("type", "name", "entities"))
    if str(_get(namespace, "type") or "EventHub").lower() != "eventhub":
        raise EntityError(f"{place}: Type: {_get(namespace, 'type')!r:.60} is not 'EventHub'")
    for hub, _ in _listed(_get(namespace, "entities"), f"{place}.Entities"):
        settings = {key: value for key, value in hub.items() if key.lower() != "name"}
        entities.add_hub(_get(hub, "name"), settings, where)


def read_rule(rule: Mapping[str, object], place: str) -> tuple[str, dict[str, object]]:
    """Return the name of a rule, and its description in the words of the broker. Raises
    `EntityError`."""
    _expect(rule, place, ("name", "properties"))
    name = _get(rule, "name")
    if not isinstance(name, str) or not name:
        raise EntityError(f"{place}: Name: a rule needs a name")
    here = f"{place} {name!r:.100}"
    settings = _settings(rule, place)
    _expect(settings, here, ("filtertype", "sqlfilter", "correlationfilter", "action"))
    kind = str(_get(settings, "filtertype") or "").lower().removesuffix("filter")
    if not kind:
        kind = "correlation" if _get(settings, "correlationfilter") is not None else "sql"
    described: dict[str, object]
    if kind == "sql":
        described = {"sql": _expression(_get(settings, "sqlfilter"), f"{here}: SqlFilter")}
    elif kind == "correlation":
        filter = _get(settings, "correlationfilter")
        described = {"correlation": _correlation(filter, f"{here}: CorrelationFilter")}
    elif kind in ("true", "false"):
        described = {kind: True}
    else:
        given = _get(settings, "filtertype")
        raise EntityError(f"{here}: FilterType: {given!r:.60} is not 'Sql' or 'Correlation'")
    action = _get(settings, "action")
    if action is not None and action != {}:
        described["action"] = _expression(action, f"{here}: Action")
    return name, described


def _expression(value: object, place: str) -> str:
    """Return the text of an SQL filter or action."""
    for key, text in _items(value, place):
        if key.lower() == "sqlexpression" and isinstance(text, str):
            return text
    raise EntityError(f"{place}: SqlExpression: a text is needed")


def _correlation(value: object, place: str) -> dict[str, object]:
    """Return the conditions of a correlation filter in the words of the broker."""
    conditions: dict[str, object] = {}
    for key, wanted in _items(value, place):
        field = _CORRELATION.get(key.lower())
        if key.lower() in _PROPERTIES:
            properties = dict(_items(wanted, f"{place}: {key}"))
            if properties:
                conditions["properties"] = properties
        elif field is None:
            raise EntityError(f"{place}: unknown key {key[:100]!r}")
        elif wanted is not None and wanted != "":
            conditions[field] = wanted
    return conditions


def _settings(entity: Mapping[str, object], place: str) -> dict[str, object]:
    return dict(_items(_get(entity, "properties"), f"{place}: Properties"))


def _get(mapping: Mapping[str, object], key: str) -> object:
    """Return the value of a key, which is given without capitals; None without it."""
    for name, value in mapping.items():
        if name.lower() == key:
            return value
    return None


def _expect(mapping: Mapping[str, object], place: str, known: tuple[str, ...]) -> None:
    for key in mapping:
        if key.lower() not in known:
            named = _get(mapping, "name")
            what = "" if named is None else f" {named!r:.100}"
            raise EntityError(f"{place}{what}: unknown key {key[:100]!r}")


def _items(value: object, place: str) -> Iterator[tuple[str, object]]:
    """Yield the keys and values of a map; nothing for null."""
    if value is None:
        return
    if not isinstance(value, dict):
        raise EntityError(f"{place}: {value!r:.60} is no map")
    for key, inner in value.items():
        yield str(key), inner


def _listed(value: object, place: str) -> Iterator[tuple[Mapping[str, object], str]]:
    """Yield the maps in a list with their places; nothing for null."""
    if value is None:
        return
    if not isinstance(value, list):
        raise EntityError(f"{place}: {value!r:.60} is no list")
    for at, one in enumerate(value):
        if not isinstance(one, dict):
            raise EntityError(f"{place}[{at}]: {one!r:.60} is no map")
        yield one, f"{place}[{at}]"
