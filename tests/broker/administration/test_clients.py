"""The vendor's administration clients, unmodified, over TLS."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, ParamSpec, TypeVar

import pytest

import ferrymq
from ferrymq import Message
from ferrymq_broker.config.security import Security
from ferrymq_broker.nodes.message import admit
from ferrymq_broker.server import BrokerServer
from ferrymq_codec.scalars import Timestamp
from ferrymq_servicebus.administration.http_api import make_handler
from ferrymq_types.messaging import Data, MessageAnnotations
from tests.broker.harness import encode
from tests.broker.tls.conftest import pki as pki
from tests.broker.tls.pki import Pki, serving

pytest.importorskip("azure.servicebus")

from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
)
from azure.servicebus.aio.management import (
    ServiceBusAdministrationClient as AsyncClient,
)
from azure.servicebus.management import (
    CorrelationRuleFilter,
    FalseRuleFilter,
    ServiceBusAdministrationClient,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)

P = ParamSpec("P")
T = TypeVar("T")
KEYS = Security.model_validate(
    {
        "shared_access_key": [
            {"name": "owner", "primary": "b3duZXI=", "may": "*"},
            {"name": "sender", "primary": "c2VuZGVy", "may": ["send"]},
        ]
    }
)


def in_thread(function: Callable[P, T]) -> Callable[P, Awaitable[T]]:
    """The blocking function, run in a thread."""

    @functools.wraps(function)
    async def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.to_thread(function, *args, **kwargs)

    return run


@pytest.fixture
async def server(pki: Pki) -> AsyncIterator[BrokerServer]:
    server = serving(pki.tls(), "any://127.0.0.1:0", security=KEYS)
    server.tables = replace(server.tables, http_handlers={"": make_handler})
    async with server:
        yield server


def text(server: BrokerServer, name: str = "owner", key: str = "b3duZXI=") -> str:
    return f"Endpoint=sb://localhost:{server.port};SharedAccessKeyName={name};SharedAccessKey={key}"


@pytest.fixture
def client(server: BrokerServer, pki: Pki) -> ServiceBusAdministrationClient:
    return ServiceBusAdministrationClient.from_connection_string(
        text(server), connection_verify=str(pki.path("ca")), retry_total=0
    )


async def test_a_queue_from_its_creation_to_its_end(
    client: ServiceBusAdministrationClient,
) -> None:
    def work() -> None:
        made = client.create_queue(
            "orders",
            lock_duration=timedelta(seconds=30),
            max_delivery_count=4,
            requires_session=True,
            default_message_time_to_live=timedelta(hours=1),
            requires_duplicate_detection=True,
            duplicate_detection_history_time_window="PT5M",
            user_metadata="of the shop",
            dead_lettering_on_message_expiration=True,
        )
        for queue in (made, client.get_queue("orders"), client.get_queue("ORDERS")):
            assert queue.lock_duration == timedelta(seconds=30)
            assert queue.max_delivery_count == 4
            assert queue.requires_session and queue.requires_duplicate_detection
            assert queue.default_message_time_to_live == timedelta(hours=1)
            assert queue.duplicate_detection_history_time_window == timedelta(minutes=5)
            assert queue.user_metadata == "of the shop"
            assert queue.dead_lettering_on_message_expiration
            assert queue.status == "Active" and queue.availability_status == "Available"
        made.lock_duration = timedelta(minutes=2)
        client.update_queue(made, max_delivery_count=7)
        queue = client.get_queue("orders")
        assert queue.name == "orders"
        assert queue.lock_duration == timedelta(minutes=2)
        assert queue.max_delivery_count == 7
        assert queue.user_metadata == "of the shop"
        client.delete_queue("orders")
        with pytest.raises(ResourceNotFoundError):
            client.get_queue("orders")

    await in_thread(work)()


async def test_errors_are_the_exceptions_of_the_client(
    client: ServiceBusAdministrationClient,
) -> None:
    def work() -> None:
        client.create_queue("orders")
        for create in (client.create_queue, client.create_topic):
            with pytest.raises(ResourceExistsError):
                create("orders")
        with pytest.raises(ResourceExistsError):
            client.create_queue("Orders")
        queue = client.get_queue("orders")
        client.delete_queue("orders")
        for missing in (
            lambda: client.delete_queue("orders"),
            lambda: client.update_queue(queue),
            lambda: client.get_queue_runtime_properties("orders"),
            lambda: client.get_topic("orders"),
            lambda: client.get_subscription("orders", "audit"),
            lambda: client.create_subscription("orders", "audit"),
            lambda: client.get_rule("orders", "audit", "$Default"),
        ):
            with pytest.raises(ResourceNotFoundError):
                missing()
        with pytest.raises(HttpResponseError) as error:
            client.create_queue("orders", lock_duration=timedelta(minutes=6))
        assert error.value.status_code == 400
        assert "LockDuration" in str(error.value)
        with pytest.raises(HttpResponseError):
            client.create_queue("$cbs2")

    await in_thread(work)()


async def test_what_a_queue_holds(
    server: BrokerServer, client: ServiceBusAdministrationClient
) -> None:
    made = await in_thread(client.create_queue)("orders")
    assert made.max_size_in_megabytes == 1024
    before = await in_thread(client.get_queue_runtime_properties)("orders")
    assert before.total_message_count == 0 and isinstance(before.created_at_utc, datetime)
    space = server.broker.default
    sub_queue = space.nodes["orders/$DeadLetterQueue"]
    server.broker.begin_pass(server.clock.now())
    for node, count in ((space.nodes["orders"], 3), (sub_queue, 2)):
        for _ in range(count):
            node.publish(admit(encode(Data(b"hello")), 0))
    server.broker.finish_pass()
    after = await in_thread(client.get_queue_runtime_properties)("orders")
    assert after.active_message_count == 3
    assert after.dead_letter_message_count == 2
    assert after.scheduled_message_count == 0
    assert after.total_message_count == 5
    assert after.size_in_bytes > 0


async def test_what_a_subscription_holds(
    server: BrokerServer, client: ServiceBusAdministrationClient
) -> None:
    await in_thread(client.create_topic)("news")
    await in_thread(client.create_subscription)("news", "audit")
    space = server.broker.default
    server.broker.begin_pass(server.clock.now())
    later = Timestamp(int(server.broker.clock.now + server.broker.clock.epoch + 3600) * 1000)
    when = MessageAnnotations({"x-opt-scheduled-enqueue-time": later})
    for _ in range(2):
        space.nodes["news"].publish(admit(encode(Data(b"now")), 0))
    space.nodes["news"].publish(admit(encode(when, Data(b"later")), 0))
    space.nodes["news::audit/$DeadLetterQueue"].publish(admit(encode(Data(b"dead")), 0))
    server.broker.finish_pass()
    figures = await in_thread(client.get_subscription_runtime_properties)("news", "audit")
    assert figures.active_message_count == 2
    assert figures.dead_letter_message_count == 1
    assert figures.total_message_count == 4


async def test_listing_in_pages(client: ServiceBusAdministrationClient) -> None:
    def work() -> None:
        names = [f"queue-{number:03}" for number in range(25)]
        for name in names:
            client.create_queue(name)
        client.create_topic("news")
        assert [queue.name for queue in client.list_queues()] == names
        assert [queue.name for queue in client.list_queues(max_page_size=10)] == names
        pages = list(client.list_queues(max_page_size=10).by_page())
        assert len(pages) == 3
        last = list(client.list_queues(start_index=20, max_page_size=10))
        assert [queue.name for queue in last] == names[20:]
        assert len(list(client.list_queues_runtime_properties())) == 25
        assert [topic.name for topic in client.list_topics()] == ["news"]
        assert list(client.list_subscriptions("news")) == []

    await in_thread(work)()


async def test_topics_subscriptions_and_rules(client: ServiceBusAdministrationClient) -> None:
    def work() -> None:
        topic = client.create_topic("news", default_message_time_to_live=timedelta(days=1))
        assert topic.default_message_time_to_live == timedelta(days=1)
        client.update_topic(topic, default_message_time_to_live=timedelta(days=2))
        assert client.get_topic("news").default_message_time_to_live == timedelta(days=2)
        made = client.create_subscription("news", "audit", max_delivery_count=3)
        assert made.name == "audit" and made.max_delivery_count == 3
        client.update_subscription("news", made, lock_duration=timedelta(seconds=5))
        assert client.get_subscription("news", "Audit").lock_duration == timedelta(seconds=5)
        with pytest.raises(ResourceExistsError):
            client.create_subscription("news", "AUDIT")
        assert [each.name for each in client.list_subscriptions("news")] == ["audit"]
        (figures,) = client.list_subscriptions_runtime_properties("news")
        assert figures.active_message_count == 0 and figures.transfer_message_count == 0
        assert client.get_topic_runtime_properties("news").subscription_count == 1

        (first,) = client.list_rules("news", "audit")
        assert first.name == "$Default" and isinstance(first.filter, TrueRuleFilter)
        filters: list[Any] = [
            SqlRuleFilter("color = 'red' AND price > 3"),
            CorrelationRuleFilter(
                correlation_id="c", label="l", session_id="s",
                properties={"a": "x", "n": 5, "b": True, "d": 1.5, "big": 2**40},
            ),
            FalseRuleFilter(),
        ]  # fmt: skip
        for number, each in enumerate(filters):
            action = SqlRuleAction("SET color = 'blue'") if number == 0 else None
            client.create_rule("news", "audit", f"rule-{number}", filter=each, action=action)
        sql = client.get_rule("news", "audit", "rule-0")
        assert sql.filter.sql_expression == "color = 'red' AND price > 3"
        assert sql.action.sql_expression == "SET color = 'blue'"
        correlation = client.get_rule("news", "audit", "RULE-1")
        assert correlation.filter.correlation_id == "c" and correlation.filter.label == "l"
        assert correlation.filter.properties == filters[1].properties
        assert isinstance(client.get_rule("news", "audit", "rule-2").filter, FalseRuleFilter)
        sql.filter = SqlRuleFilter("color = 'green'")
        client.update_rule("news", "audit", sql)
        rules = {rule.name: rule for rule in client.list_rules("news", "audit")}
        assert rules["rule-0"].filter.sql_expression == "color = 'green'"
        assert len(rules) == 4
        with pytest.raises(ResourceExistsError):
            client.create_rule("news", "audit", "rule-0", filter=FalseRuleFilter())
        with pytest.raises(HttpResponseError):
            client.create_rule("news", "audit", "bad", filter=SqlRuleFilter("color ="))
        for name in rules:
            client.delete_rule("news", "audit", name)
        assert list(client.list_rules("news", "audit")) == []
        with pytest.raises(ResourceNotFoundError):
            client.delete_rule("news", "audit", "rule-0")
        client.delete_subscription("news", "audit")
        client.delete_topic("news")
        assert list(client.list_topics()) == []

    await in_thread(work)()


async def test_an_entity_can_be_used_at_once(pki: Pki) -> None:
    """A broker that knows no keys ignores the token."""
    server = serving(pki.tls(), "any://127.0.0.1:0")
    server.tables = replace(server.tables, http_handlers={"": make_handler})
    async with server:
        client = ServiceBusAdministrationClient.from_connection_string(
            text(server), connection_verify=str(pki.path("ca")), retry_total=0
        )
        await in_thread(client.create_topic)("news")
        await in_thread(client.create_subscription)("news", "all")
        url = f"amqps://localhost:{server.port}"
        async with (
            ferrymq.connect(url, ssl=pki.trusting()) as connection,
            connection.sender("news") as sender,
            connection.receiver("news::all") as receiver,
        ):
            await sender.send(Message(body=b"hello"))
            delivery = await receiver.receive(timeout=20)
            assert delivery.message.body == b"hello"
            await delivery.accept()


async def test_who_may_administer(server: BrokerServer, pki: Pki) -> None:
    def refused(name: str, key: str) -> None:
        client = ServiceBusAdministrationClient.from_connection_string(
            text(server, name, key), connection_verify=str(pki.path("ca")), retry_total=0
        )
        for ask in (
            lambda: client.create_queue("orders"),
            lambda: client.get_queue("orders"),
            lambda: list(client.list_queues()),
            lambda: client.delete_queue("orders"),
            lambda: client.create_subscription("news", "audit"),
            client.get_namespace_properties,
        ):
            with pytest.raises(ClientAuthenticationError):
                ask()

    await in_thread(refused)("sender", "c2VuZGVy")
    await in_thread(refused)("owner", "d3Jvbmc=")
    await in_thread(refused)("nobody", "b3duZXI=")
    assert "orders" not in server.broker.default.nodes


async def test_the_asynchronous_client(server: BrokerServer, pki: Pki) -> None:
    async with AsyncClient.from_connection_string(
        text(server), connection_verify=str(pki.path("ca")), retry_total=0
    ) as client:
        namespace = await client.get_namespace_properties()
        assert namespace.name == "default" and namespace.messaging_sku == "Standard"
        await client.create_queue("archive")
        await client.create_queue("orders", forward_to="archive")
        queue = await client.get_queue("orders")
        assert queue.forward_to == "archive"
        assert [each.name async for each in client.list_queues()] == ["archive", "orders"]
        await client.update_queue(queue, max_delivery_count=2)
        assert (await client.get_queue("orders")).max_delivery_count == 2
        await client.delete_queue("orders")
        with pytest.raises(ResourceNotFoundError):
            await client.get_queue("orders")
