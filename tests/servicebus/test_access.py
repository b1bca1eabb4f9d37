"""Keys with the rights Send, Listen and Manage, for the namespace or for one entity."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest

import ferrymq
from ferrymq_broker.config import Config
from ferrymq_broker.server import BrokerServer
from tests.broker.tls.conftest import pki as pki
from tests.broker.tls.pki import Pki

servicebus = pytest.importorskip("azure.servicebus")
management = pytest.importorskip("azure.servicebus.management")
exceptions = pytest.importorskip("azure.servicebus.exceptions")
eventhub = pytest.importorskip("azure.eventhub")
core = pytest.importorskip("azure.core.exceptions")

pytestmark = pytest.mark.interop

ROOT, SENDER, READER, OTHER = (f"{name} key of at least 32 bytes" for name in "abcd")
WAIT = 5


def config(url: str, pki: Pki | None = None) -> Config:
    return Config.model_validate(
        {
            "listener": [{"url": url}],
            **({} if pki is None else {"tls": pki.tls().model_dump(exclude_unset=True)}),
            "security": {
                "anonymous": True,
                "shared-access-key": [
                    {"name": "root", "primary": ROOT, "rights": "manage"},
                    {"name": "send", "primary": SENDER, "rights": "send"},
                    {"name": "app", "primary": READER, "entity": "orders", "rights": "listen"},
                    {
                        "name": "app",
                        "primary": OTHER,
                        "entity": "Other",
                        "rights": ["send", "listen"],
                    },
                ],
            },
            "personality": {
                "name": "azure",
                "queue": [{"name": "Orders"}, {"name": "other"}],
                "topic": [{"name": "news", "subscription": [{"name": "audit"}]}],
                "hub": [{"name": "clicks"}],
            },
        }
    )


def run(settings: Config, *uses: Callable[[int], None]) -> None:
    """Call each function with the port of a broker, all at the same time: to open and to close a
    link, the SDKs mostly sleep."""

    async def serve() -> None:
        async with BrokerServer(settings) as server:
            await asyncio.gather(*(asyncio.to_thread(use, server.port) for use in uses))

    asyncio.run(serve())


def text(port: int, name: str, key: str, emulator: bool = True) -> str:
    more = "UseDevelopmentEmulator=true;" if emulator else ""
    return f"Endpoint=sb://localhost:{port};SharedAccessKeyName={name};SharedAccessKey={key};{more}"


def client(port: int, name: str, key: str) -> Any:
    return servicebus.ServiceBusClient.from_connection_string(text(port, name, key), retry_total=0)


def send(bus: Any, queue: str) -> None:
    with bus.get_queue_sender(queue) as sender:
        sender.send_messages(servicebus.ServiceBusMessage("one"))


def receive(bus: Any, queue: str, **options: Any) -> int:
    with bus.get_queue_receiver(queue, **options) as receiver:
        return len(receiver.receive_messages(1, 0.2))


def refused() -> Any:
    return pytest.raises(
        (exceptions.ServiceBusAuthorizationError, exceptions.ServiceBusAuthenticationError)
    )


def test_rights_of_keys_of_the_namespace() -> None:
    def manage(port: int) -> None:
        with client(port, "root", ROOT) as bus:
            send(bus, "ORDERS")
            with bus.get_queue_receiver("orders") as receiver:
                assert len(receiver.peek_messages()) == 1
                assert len(receiver.receive_messages(1, WAIT)) == 1

    def only_send(port: int) -> None:
        with client(port, "send", SENDER) as bus:
            send(bus, "other")
            with refused():
                receive(bus, "other")

    def wrong_key(port: int) -> None:
        with client(port, "send", "wrong") as bus, refused():
            send(bus, "other")

    def topics(port: int) -> None:
        with client(port, "send", SENDER) as bus:
            with bus.get_topic_sender("news") as sender:
                sender.send_messages(servicebus.ServiceBusMessage("one"))
            with refused(), bus.get_subscription_receiver("news", "audit") as receiver:
                receiver.receive_messages(1, 1)
        with (
            client(port, "root", ROOT) as bus,
            bus.get_subscription_receiver("news", "audit") as receiver,
        ):
            assert len(receiver.receive_messages(1, WAIT)) == 1

    def event_hubs(port: int) -> None:
        def producer(name: str, key: str) -> Any:
            return eventhub.EventHubProducerClient.from_connection_string(
                text(port, name, key), eventhub_name="clicks", retry_total=0
            )

        with producer("send", SENDER) as sender:
            sender.send_batch([eventhub.EventData("one")])
            with pytest.raises(eventhub.exceptions.EventHubError):
                sender.get_partition_properties("0")
        with producer("root", ROOT) as manager:
            assert manager.get_partition_properties("0")["is_empty"] is False

    run(config("amqp://127.0.0.1:0"), manage, only_send, wrong_key, topics, event_hubs)


def test_keys_of_one_entity() -> None:
    """Equal names on different entities are different keys."""

    def listen(port: int) -> None:
        with client(port, "app", READER) as bus:
            with bus.get_queue_receiver("orders") as receiver:
                assert receiver.peek_messages() == []
            with refused():
                send(bus, "orders")

    def dead_letters(port: int) -> None:
        with client(port, "app", READER) as bus:
            dead = servicebus.ServiceBusSubQueue.DEAD_LETTER
            assert receive(bus, "orders", sub_queue=dead) == 0
            with refused():
                receive(bus, "other")

    def another(port: int) -> None:
        with client(port, "app", OTHER) as bus:
            send(bus, "other")
            assert receive(bus, "other") == 1
            with refused():
                receive(bus, "orders")

    run(config("amqp://127.0.0.1:0"), listen, dead_letters, another)


def test_the_connection_string_of_the_service_over_tls_and_websocket(pki: Pki) -> None:
    ca = str(pki.path("ca"))

    def use(port: int, transport: Any) -> None:
        with servicebus.ServiceBusClient.from_connection_string(
            text(port, "root", ROOT, emulator=False),
            retry_total=0,
            connection_verify=ca,
            transport_type=transport,
            custom_endpoint_address=f"sb://localhost:{port}",
        ) as bus:
            send(bus, "orders")
            assert receive(bus, "orders") == 1

    def over_tls(port: int) -> None:
        use(port, servicebus.TransportType.Amqp)

    def over_websocket(port: int) -> None:
        use(port, servicebus.TransportType.AmqpOverWebsocket)

    def administer(port: int) -> None:
        with (
            management.ServiceBusAdministrationClient.from_connection_string(
                text(port, "app", READER, emulator=False), connection_verify=ca
            ) as administration,
            pytest.raises(core.HttpResponseError) as caught,
        ):
            administration.create_queue("new")
        assert caught.value.status_code in (401, 403)

    run(config("any://127.0.0.1:0", pki), over_tls, over_websocket, administer)


async def test_the_name_and_the_key_by_sasl_plain() -> None:
    async with BrokerServer(config("amqp://127.0.0.1:0")) as server:

        def connect(secret: str) -> Any:
            secret = quote(secret, safe="")
            return ferrymq.connect(f"amqp://app:{secret}@127.0.0.1:{server.port}", timeout=WAIT)

        async with connect(READER) as connection:
            await connection.receiver("orders")
            for refused_link in (connection.sender("orders"), connection.receiver("other")):
                with pytest.raises(ferrymq.LinkDetached, match="unauthorized-access"):
                    await refused_link
        async with connect(OTHER) as connection:
            await connection.sender("other")
        with pytest.raises(ferrymq.AuthenticationError):
            async with connect(ROOT):
                pass


async def test_only_a_token_may_be_put_before_there_is_one() -> None:
    async with BrokerServer(config("amqp://127.0.0.1:0")) as server:
        url = f"amqp://127.0.0.1:{server.port}"
        async with ferrymq.connect(url, timeout=WAIT) as connection:
            for refused_link in (
                connection.sender("$management"),
                connection.receiver("$management"),
                connection.sender("orders/$management"),
                connection.sender(None),
                connection.sender("orders"),
            ):
                with pytest.raises(ferrymq.LinkDetached, match="unauthorized-access"):
                    await refused_link
            with pytest.raises(ferrymq.AmqpError, match="nothing is allowed to you yet"):
                async with connection.transaction():
                    pass
