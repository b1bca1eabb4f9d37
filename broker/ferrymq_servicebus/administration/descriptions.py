"""Descriptions of entities: their properties by name, as XML elements.

A description maps the vendor's names to values: numbers, booleans and texts. Durations are texts if
they were received, and numbers of milliseconds to send, 0 for no limit. The order of the tables is
the order of the elements, which clients rely on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias
from xml.etree.ElementTree import Element, SubElement

from ferrymq_servicebus.administration.atom import COUNTS, INSTANCE, name
from ferrymq_servicebus.administration.errors import HttpError
from ferrymq_servicebus.durations import write_duration

Description: TypeAlias = dict[str, object]
Kind: TypeAlias = Literal["duration", "int", "bool", "text", "counts"]

# The most characters of a text that an error repeats.
_SHOWN: Final = 100
_LONGEST: Final = 4096

QUEUE: Final[dict[str, Kind]] = {
    "LockDuration": "duration",
    "MaxSizeInMegabytes": "int",
    "RequiresDuplicateDetection": "bool",
    "RequiresSession": "bool",
    "DefaultMessageTimeToLive": "duration",
    "DeadLetteringOnMessageExpiration": "bool",
    "DuplicateDetectionHistoryTimeWindow": "duration",
    "MaxDeliveryCount": "int",
    "EnableBatchedOperations": "bool",
    "SizeInBytes": "int",
    "MessageCount": "int",
    "IsAnonymousAccessible": "bool",
    "Status": "text",
    "CreatedAt": "text",
    "UpdatedAt": "text",
    "AccessedAt": "text",
    "SupportOrdering": "bool",
    "CountDetails": "counts",
    "AutoDeleteOnIdle": "duration",
    "EnablePartitioning": "bool",
    "EntityAvailabilityStatus": "text",
    "EnableExpress": "bool",
    "ForwardTo": "text",
    "UserMetadata": "text",
    "ForwardDeadLetteredMessagesTo": "text",
    "MaxMessageSizeInKilobytes": "int",
}
TOPIC: Final[dict[str, Kind]] = {
    "DefaultMessageTimeToLive": "duration",
    "MaxSizeInMegabytes": "int",
    "RequiresDuplicateDetection": "bool",
    "DuplicateDetectionHistoryTimeWindow": "duration",
    "EnableBatchedOperations": "bool",
    "SizeInBytes": "int",
    "FilteringMessagesBeforePublishing": "bool",
    "IsAnonymousAccessible": "bool",
    "Status": "text",
    "CreatedAt": "text",
    "UpdatedAt": "text",
    "AccessedAt": "text",
    "SupportOrdering": "bool",
    "CountDetails": "counts",
    "SubscriptionCount": "int",
    "AutoDeleteOnIdle": "duration",
    "EnablePartitioning": "bool",
    "EntityAvailabilityStatus": "text",
    "EnableSubscriptionPartitioning": "bool",
    "EnableExpress": "bool",
    "UserMetadata": "text",
    "MaxMessageSizeInKilobytes": "int",
}
SUBSCRIPTION: Final[dict[str, Kind]] = {
    "LockDuration": "duration",
    "RequiresSession": "bool",
    "DefaultMessageTimeToLive": "duration",
    "DeadLetteringOnMessageExpiration": "bool",
    "DeadLetteringOnFilterEvaluationExceptions": "bool",
    "MessageCount": "int",
    "MaxDeliveryCount": "int",
    "EnableBatchedOperations": "bool",
    "Status": "text",
    "ForwardTo": "text",
    "CreatedAt": "text",
    "UpdatedAt": "text",
    "AccessedAt": "text",
    "CountDetails": "counts",
    "UserMetadata": "text",
    "ForwardDeadLetteredMessagesTo": "text",
    "AutoDeleteOnIdle": "duration",
    "EntityAvailabilityStatus": "text",
}
NAMESPACE: Final[dict[str, Kind]] = {
    "Alias": "text",
    "CreatedTime": "text",
    "MessagingSKU": "text",
    "MessagingUnits": "int",
    "ModifiedTime": "text",
    "Name": "text",
    "NamespaceType": "text",
}
TABLES: Final[dict[str, dict[str, Kind]]] = {
    "QueueDescription": QUEUE,
    "TopicDescription": TOPIC,
    "SubscriptionDescription": SUBSCRIPTION,
    "NamespaceInfo": NAMESPACE,
}
# Properties that are facts, which clients send back in updates.
FACTS: Final = frozenset(
    {
        "SizeInBytes", "MessageCount", "CountDetails", "CreatedAt", "UpdatedAt", "AccessedAt",
        "SubscriptionCount", "EntityAvailabilityStatus",
    }
)  # fmt: skip


def kind_of(element: Element) -> str:
    """Return the kind of a description, its name without the namespace. Raises `HttpError`."""
    kind = element.tag.rpartition("}")[2]
    if element.tag != name(kind) or (kind not in TABLES and kind != "RuleDescription"):
        raise HttpError(400, f"{kind[:_SHOWN]!r} describes nothing that is known")
    return kind


def read(element: Element) -> Description:
    """Return the settings of a description, without facts and unknown properties. Raises
    `HttpError` (400)."""
    table = TABLES[kind_of(element)]
    found: Description = {}
    for child in element:
        tag = child.tag.rpartition("}")[2]
        kind = table.get(tag)
        if kind is None or tag in FACTS or child.tag != name(tag):
            continue
        if child.get(f"{{{INSTANCE}}}nil") == "true":
            continue
        text = (child.text or "").strip()
        if text:
            found[tag] = _value(tag, kind, text)
    return found


def write(kind: str, description: Mapping[str, object]) -> Element:
    """Return a description as an element, without properties that have no value."""
    made = Element(name(kind))
    for tag, form in TABLES[kind].items():
        value = description.get(tag)
        if value is None:
            continue
        child = SubElement(made, name(tag))
        if form == "counts":
            assert isinstance(value, Mapping)
            for each, count in value.items():
                SubElement(child, name(each, COUNTS)).text = str(count)
        elif form == "duration":
            child.text = write_duration(value) if isinstance(value, int) else str(value)
        elif form == "bool":
            child.text = "true" if value else "false"
        else:
            child.text = str(value)
    return made


def _value(tag: str, kind: Kind, text: str) -> object:
    if len(text) > _LONGEST:
        raise HttpError(400, f"{tag} has more than {_LONGEST} characters")
    if kind == "bool":
        if text.lower() not in ("true", "false"):
            raise HttpError(400, f"{tag}: {text[:_SHOWN]!r} must be true or false")
        return text.lower() == "true"
    if kind == "int":
        if not text.isascii() or not text.isdigit() or len(text) > 18:
            raise HttpError(400, f"{tag}: {text[:_SHOWN]!r} must be a number")
        return int(text)
    return text
