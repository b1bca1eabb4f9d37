"""Brokers with the entities of a personality."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from ferrymq_broker.config import Config
from ferrymq_broker.nodes.personality import Personality
from ferrymq_servicebus.entity_settings import declare_entities
from tests.broker.harness import Network

# The sample that comes with the vendor's emulator has entities of all these kinds.
SAMPLE: dict[str, object] = {
    "UserConfig": {
        "Namespaces": [
            {
                "Name": "sbemulatorns",
                "Queues": [
                    {
                        "Name": "Orders",
                        "Properties": {
                            "DeadLetteringOnMessageExpiration": True,
                            "DefaultMessageTimeToLive": "PT1H",
                            "DuplicateDetectionHistoryTimeWindow": "PT20S",
                            "ForwardDeadLetteredMessagesTo": "",
                            "ForwardTo": "",
                            "LockDuration": "PT30S",
                            "MaxDeliveryCount": 3,
                            "RequiresDuplicateDetection": True,
                            "RequiresSession": False,
                        },
                    },
                    {"Name": "plain"},
                ],
                "Topics": [
                    {
                        "Name": "news",
                        "Properties": {
                            "DefaultMessageTimeToLive": "PT1H",
                            "DuplicateDetectionHistoryTimeWindow": "PT20S",
                            "RequiresDuplicateDetection": True,
                        },
                        "Subscriptions": [
                            {
                                "Name": "all",
                                "Properties": {
                                    "DefaultMessageTimeToLive": "P10675199DT2H48M5.4775807S",
                                    "ForwardTo": "PLAIN",
                                },
                            },
                            {
                                "Name": "some",
                                "Properties": {"LockDuration": "PT1M", "MaxDeliveryCount": 1},
                                "Rules": [
                                    {
                                        "Name": "by-values",
                                        "Properties": {
                                            "FilterType": "Correlation",
                                            "CorrelationFilter": {
                                                "ContentType": "application/text",
                                                "Label": "subject1",
                                                "MessageId": "",
                                                "Properties": {"prop": "value"},
                                            },
                                        },
                                    },
                                    {
                                        "Name": "by-text",
                                        "Properties": {
                                            "FilterType": "Sql",
                                            "SqlFilter": {"SqlExpression": "sys.Label = 'sql'"},
                                            "Action": {"SqlExpression": "SET seen = TRUE"},
                                        },
                                    },
                                ],
                            },
                        ],
                    }
                ],
            }
        ],
        "NamespaceConfig": [
            {
                "Type": "EventHub",
                "Name": "emulatorNs1",
                "Entities": [
                    {"Name": "hub", "PartitionCount": "2", "ConsumerGroups": [{"Name": "cg1"}]},
                    {"Name": "open", "PartitionCount": 1, "ConsumerGroups": []},
                ],
            }
        ],
        "Logging": {"Type": "File"},
    }
}


class Entities(Personality):
    """A personality that only declares entities."""

    def __init__(self, net: Network, settings: Mapping[str, object], directory: Path) -> None:
        self.net = net
        self.settings = settings
        self.directory = directory

    def declare(self) -> None:
        declare_entities(self.net.space, self.settings, self.directory)


def start(net: Network, settings: Mapping[str, object], directory: Path = Path()) -> None:
    """Stop the broker, and start it with these entities and with what it has stored."""
    net.personality = lambda: Entities(net, settings, directory)
    net.restart(Config())


def written(directory: Path, document: object = SAMPLE) -> dict[str, object]:
    """The settings with a ``Config.json`` that has this content."""
    (directory / "Config.json").write_text(json.dumps(document), "utf-8")
    return {"name": "azure", "config": "Config.json"}
