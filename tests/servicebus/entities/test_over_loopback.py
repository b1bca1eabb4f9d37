"""A server with entities of a Config.json, and the project's client on loopback."""

from __future__ import annotations

from pathlib import Path

import ferrymq
from ferrymq_broker.broker import Broker
from ferrymq_broker.config import Config, Listener
from ferrymq_broker.config.storage import Store
from ferrymq_broker.nodes.personality import Personality
from ferrymq_broker.server import BrokerServer
from ferrymq_broker.server.host_tables import HostTables
from ferrymq_servicebus.entity_settings import declare_entities
from tests.servicebus.entities.azure import written


class _Declares(Personality):
    def __init__(self, broker: Broker, settings: dict[str, object], directory: Path) -> None:
        self.broker = broker
        self.settings = settings
        self.directory = directory

    def declare(self) -> None:
        declare_entities(self.broker.default, self.settings, self.directory)


def _server(tmp_path: Path) -> BrokerServer:
    class Tables(HostTables):
        """Tables that are added when the virtual hosts exist and nothing else does."""

        def add_words(self, broker: Broker) -> None:
            broker.default.personality = _Declares(broker, written(tmp_path), tmp_path)

        def joined(self, more: HostTables) -> HostTables:
            return self

    config = Config(
        listener=[Listener(url="amqp://127.0.0.1:0")], store=Store(path=tmp_path / "data")
    )
    server = BrokerServer(config)
    server.tables = Tables()
    return server


async def test_dead_letters_survive_a_restart(tmp_path: Path) -> None:
    async with (
        _server(tmp_path) as server,
        ferrymq.connect(server.url) as connection,
        connection.sender("Orders") as sender,
        connection.receiver("Orders") as receiver,
    ):
        await sender.send(ferrymq.Message(body="a"))
        delivery = await receiver.receive(timeout=10)
        await delivery.reject("app:broken", "cannot be read")
    async with (
        _server(tmp_path) as server,
        ferrymq.connect(server.url) as connection,
        connection.receiver("Orders/$DeadLetterQueue") as receiver,
    ):
        delivery = await receiver.receive(timeout=10)
        assert delivery.message.body == "a"
        annotations = delivery.message.message_annotations or {}
        assert annotations["x-opt-deadletter-source"] == "Orders"
        await delivery.accept()
