"""Personalities of installed packages, named by the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import ferrymq
from ferrymq_broker.addresses.address_space import AddressSpace
from ferrymq_broker.broker import Broker
from ferrymq_broker.config.errors import ConfigError
from ferrymq_broker.config.load import load_config
from ferrymq_broker.config.model import Config
from ferrymq_broker.nodes.personality import Personality
from ferrymq_broker.server import personalities
from ferrymq_broker.server.personalities import GROUP, PersonalityPackage
from ferrymq_broker.server.server import BrokerServer

FILE = """
listener = [{ url = "amqp://127.0.0.1:0" }]

[[virtual-host]]
name = "other"

[personality]
name = "shop"
prefix = "Queues/"
"""


class Shop(Personality):
    """Clients write a prefix before each address."""

    def __init__(self, prefix: str) -> None:
        super().__init__()
        self.prefix = prefix

    def native(self, address: str) -> str:
        return address.removeprefix(self.prefix)


def make_shop(
    space: AddressSpace, broker: Broker, settings: Mapping[str, object], folder: Path
) -> Personality:
    prefix = settings.get("prefix", "")
    if not isinstance(prefix, str):
        raise ValueError("prefix: text is needed")
    return Shop(prefix)


SHOP = PersonalityPackage(make_shop)
NO_PACKAGE = "shop"


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [
        EntryPoint(name="shop", value=f"{__name__}:SHOP", group=GROUP),
        EntryPoint(name="broken", value=f"{__name__}:NO_PACKAGE", group=GROUP),
    ]
    monkeypatch.setattr(personalities, "entry_points", lambda group: found)


def configured(tmp_path: Path, text: str = FILE) -> Config:
    path = tmp_path / "ferrymq.toml"
    path.write_text(text, "utf-8")
    return load_config(path)


async def test_every_virtual_host_has_a_personality_with_the_settings(tmp_path: Path) -> None:
    async with BrokerServer(configured(tmp_path)) as broker:
        for space in broker.broker.spaces.values():
            assert isinstance(space.personality, Shop) and space.personality.prefix == "Queues/"
        async with ferrymq.connect(broker.url) as connection:
            await (await connection.sender("Queues/orders")).send(ferrymq.Message("one"))
            async with connection.receiver("orders") as receiver:
                assert (await receiver.receive()).message.body == "one"


async def test_without_a_name_there_is_none(tmp_path: Path) -> None:
    config = configured(tmp_path, 'listener = [{ url = "amqp://127.0.0.1:0" }]')
    async with BrokerServer(config) as broker:
        assert broker.broker.default.personality is None


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('"shop"', '"shops"', r"'shops' is not installed; installed: broken, shop"),
        ('"shop"', '"broken"', r"the entry point of 'broken' is no PersonalityPackage"),
        ('"Queues/"', "7", r"personality: prefix: text is needed"),
    ],
)
async def test_mistakes(tmp_path: Path, before: str, after: str, message: str) -> None:
    server = BrokerServer(configured(tmp_path, FILE.replace(before, after)))
    with pytest.raises(ConfigError, match=message):
        await server.start()
