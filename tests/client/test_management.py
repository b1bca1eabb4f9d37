"""The client of management nodes, against the broker of ferrymq and against other nodes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import ferrymq
from ferrymq import ManagementError, Message, blocking
from ferrymq.blocking.portal import Portal
from ferrymq.engine import SenderLink, events
from ferrymq.engine.pairing import LINK_PAIR
from ferrymq.errors import ConnectionClosed, DecodeError, LinkDetached
from ferrymq.management import Replies
from ferrymq_broker.config import Config
from ferrymq_broker.server import BrokerServer
from ferrymq_broker.values.policy import QueuePolicy
from ferrymq_types.messaging import Accepted, Source
from ferrymq_types.transport import Error
from tests.client.peer import Peer, PeerConnection

LOCAL = Config.model_validate({"listener": [{"url": "amqp://127.0.0.1:0"}]})
WAYS: list[Replies] = ["pair", "link", "dynamic"]

ways = pytest.mark.parametrize("replies", WAYS)


@pytest.fixture
async def server() -> AsyncIterator[BrokerServer]:
    async with BrokerServer(LOCAL) as running:
        yield running


def connect(url: str, **options: Any) -> Any:
    return ferrymq.connect(url, desired_capabilities=[LINK_PAIR], **options)


# -- a broker of ferrymq ---------------------------------------------------------------------


@ways
async def test_every_operation(server: BrokerServer, replies: Replies) -> None:
    async with (
        connect(server.url) as connection,
        connection.management(replies=replies) as management,
    ):
        assert (management.replies, management.address) == (replies, "$management")
        made = await management.create("queue", "orders", {"max-length": 5})
        assert made["max-length"] == 5
        assert (await management.create("queue", "moved"))["name"] == "moved"
        assert (await management.read("queue", "orders"))["name"] == "orders"
        assert (await management.update("queue", "orders", {"max-length": 6}))["max-length"] == 6
        sender = await connection.sender("orders")
        await sender.send_many([Message(body="one"), Message(body="two")])
        (peeked,) = await management.peek("queue", "orders", {"count": 1})
        assert peeked.message.body == "one" and peeked.attributes["sequence"] == 1
        assert await management.move("orders", "moved", 1) == ferrymq.MoveResult(1)
        with pytest.raises(ManagementError, match="has 1 message") as caught:
            await management.delete("queue", "orders", if_empty=True)
        assert (caught.value.status, caught.value.condition) == (409, None)
        assert await management.purge("queue", "orders") == 1
        assert (await management.delete("queue", "orders", if_empty=True)).status == 204
        with pytest.raises(ManagementError, match="no queue 'orders'") as caught:
            await management.read("queue", "orders")
        assert caught.value.status == 404
        assert caught.value.description == str(caught.value)
        rows = [row async for row in management.query("queue", ["name", "available"])]
        assert {"name": "moved", "available": 1} in rows
        # The responses may have a queue of their own.
        assert len(rows) == (2 if replies == "dynamic" else 1)
        types = await management.request("GET-TYPES", "org.amqp.management", "self")
        assert types.status == 200 and "org.ferrymq.queue" in types.map()
        assert management.closed is False
    assert management.closed is True


async def test_a_move_that_the_target_refuses_says_why(server: BrokerServer) -> None:
    async with connect(server.url) as connection, connection.management() as management:
        await management.create("queue", "orders")
        await management.create("queue", "full", {"max-length": 1, "overflow": "reject"})
        await (await connection.sender("orders")).send_many([Message(n) for n in range(3)])
        moved = await management.move("orders", "full")
        assert moved.count == 1 and moved.refused


@ways
async def test_nothing_is_left_behind(server: BrokerServer, replies: Replies) -> None:
    async with (
        connect(server.url) as connection,
        connection.management(replies=replies) as management,
    ):
        await management.read("broker", "broker")
    assert set(server.broker.default.nodes) == {"$management"}


@pytest.mark.parametrize("pairs", [True, False])
async def test_a_pair_is_taken_where_both_opens_allow_for_it(
    server: BrokerServer, pairs: bool
) -> None:
    capabilities = [LINK_PAIR] if pairs else None
    async with (
        ferrymq.connect(server.url, desired_capabilities=capabilities) as connection,
        connection.session() as session,
        session.management() as management,
    ):
        assert management.replies == ("pair" if pairs else "link")
        assert (await management.read("broker", "broker"))["name"] == "broker"
        # Nothing was made for the responses.
        assert set(server.broker.default.nodes) == {"$management"}


@ways
async def test_page_follows_page(server: BrokerServer, replies: Replies) -> None:
    async with (
        connect(server.url) as connection,
        connection.management(replies=replies) as management,
    ):
        expected = [f"q{number:04}" for number in range(1234)]
        for queue in expected:
            server.broker.default.create(queue, QueuePolicy())
        found = [str(row["name"]) async for row in management.query("queue", ["name"])]
        assert [name for name in found if not name.startswith("dynamic.")] == expected


@ways
async def test_requests_of_one_client_overlap(server: BrokerServer, replies: Replies) -> None:
    async with (
        connect(server.url) as connection,
        connection.management(replies=replies) as management,
    ):
        names = [f"q{number}" for number in range(50)]
        made = await asyncio.gather(*(management.create("queue", name) for name in names))
        assert [one["name"] for one in made] == names


async def test_who_may_not_is_told_the_condition() -> None:
    rule = {"who": ["*"], "may": ["send", "receive"], "where": ["$management"]}
    config = {
        "listener": [{"url": "amqp://127.0.0.1:0"}],
        "security": {"anonymous": True},
        "rule": [rule],
    }
    async with (
        BrokerServer(Config.model_validate(config)) as server,
        ferrymq.connect(server.url) as connection,
        connection.management() as management,
    ):
        with pytest.raises(ManagementError, match="not allowed") as caught:
            await management.create("queue", "orders")
        assert (caught.value.status, caught.value.condition) == (403, "amqp:unauthorized-access")


# -- other nodes -----------------------------------------------------------------------------


class Node(Peer):
    """A management node by a script. `answer` makes the response to a request; None holds it."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.requests: list[Message] = []
        self.outgoing: list[SenderLink] = []
        self.on[events.DeliveryReceived] = self.requested
        self.on[events.AttachReceived] = self.attached
        # Addresses that may not be read from.
        self.unreadable: set[str | None] = set()

    def attached(self, connection: PeerConnection, event: events.AttachReceived) -> None:
        remote = event.link.remote_attach
        assert remote is not None
        if isinstance(event.link, SenderLink):
            assert isinstance(remote.source, Source)
            if remote.source.address in self.unreadable:
                event.link.refuse(Error(condition="amqp:not-allowed", description="write only"))
                return
            self.outgoing.append(event.link)
        self.attach(connection, event)

    def requested(self, connection: PeerConnection, event: events.DeliveryReceived) -> None:
        request = Message.decode(event.delivery.payload)
        self.requests.append(request)
        event.delivery.settle(Accepted())
        response = self.answer(request)
        if response is not None:
            self.respond(response)

    def answer(self, request: Message) -> Message | None:
        properties = {"statusCode": 200, "statusDescription": "OK"}
        return self.response(request, properties, {"name": request.application_properties["name"]})

    def response(self, request: Message, properties: dict[str, Any], body: object = None) -> Any:
        return Message(body, correlation_id=request.message_id, application_properties=properties)

    def respond(self, response: Message | bytes) -> None:
        payload = response if isinstance(response, bytes) else response.encode()
        self.outgoing[-1].send(payload)
        self.connection.process()


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    async with Node() as running:
        yield running


async def test_the_reply_to_is_the_links_name_and_its_target(node: Node) -> None:
    async with (
        ferrymq.connect(node.url) as connection,
        connection.management("$other", replies="link") as management,
    ):
        await management.request("READ", "thing", "a", properties={"partition": "1"})
        (request,) = node.requests
        (link,) = node.outgoing
        assert link.remote_attach is not None and link.remote_attach.target is not None
        assert request.reply_to == link.name == link.remote_attach.target.address
        assert link.remote_attach.source.address == management.address == "$other"
        assert request.application_properties == {
            "operation": "READ",
            "type": "thing",
            "name": "a",
            "partition": "1",
        }
        assert request.body is None


async def test_a_node_that_sends_nothing_is_answered_to_a_dynamic_node(node: Node) -> None:
    node.unreadable.add("$management")
    async with ferrymq.connect(node.url) as connection:
        async with connection.management() as management:
            assert management.replies == "dynamic"
            assert (await management.read("thing", "a"))["name"] == "a"
            assert node.requests[0].reply_to == "made-up"
        # The reason that helps is that of the node.
        node.unreadable.add(None)
        with pytest.raises(LinkDetached, match="write only"):
            await connection.management()
        with pytest.raises(LinkDetached):
            await connection.management(replies="dynamic")


async def test_a_query_is_made_as_the_draft_has_it(node: Node) -> None:
    """Where the node does not say how many there are, a page that is not full is the last."""

    def answer(request: Message) -> Any:
        asked = request.application_properties["count"]
        rows = asked if request.application_properties["offset"] == 0 else 3
        table = {"attributeNames": ["n"], "results": [[n] for n in range(rows)]}
        return node.response(request, {"statusCode": 200}, table)

    node.answer = answer  # type: ignore[method-assign]
    async with ferrymq.connect(node.url) as connection, connection.management() as management:
        rows = [row["n"] async for row in management.query("router", ["n"])]
    first, second = node.requests
    count = first.application_properties["count"]
    assert rows == [*range(count), *range(3)]
    assert first.application_properties == {
        "operation": "QUERY",
        "type": "org.amqp.management",
        "name": "self",
        "entityType": "router",
        "offset": 0,
        "count": count,
    }
    assert second.application_properties["offset"] == count
    assert first.body == {"attributeNames": ["n"]}


@pytest.mark.parametrize(
    ("properties", "body", "status", "description", "condition"),
    [
        ({"statusCode": 404, "statusDescription": "gone"}, {}, 404, "gone", None),
        (
            {"status-code": 401, "status-description": "who?", "error-condition": "amqp:x"},
            {},
            *(401, "who?", "amqp:x"),
        ),
        ({"statusCode": 302}, {}, 302, "status 302, without a description", None),
        ({"statusCode": "200"}, {}, 500, "the response has no statusCode", None),
        ({}, {}, 500, "the response has no statusCode", None),
        ({"statusCode": 200}, "text", 500, "the response is not a map", None),
    ],
)
async def test_a_response_that_says_no_or_nothing(
    node: Node,
    properties: dict[str, Any],
    body: object,
    status: int,
    description: str,
    condition: str | None,
) -> None:
    node.answer = lambda request: node.response(  # type: ignore[method-assign]
        request, properties, body
    )
    async with ferrymq.connect(node.url) as connection, connection.management() as management:
        with pytest.raises(ManagementError) as caught:
            await management.read("thing", "a")
        error = caught.value
        assert (error.status, error.description, error.condition) == (
            status,
            description,
            condition,
        )
        # The client is none the worse for it.
        del node.answer
        assert await management.read("thing", "b") == {"name": "b"}


async def test_a_response_that_is_no_message_ends_the_wait(node: Node) -> None:
    node.answer = lambda request: b"\x00\x53\x73\xa1\x7fshort"  # type: ignore[method-assign, return-value]
    async with ferrymq.connect(node.url) as connection, connection.management() as management:
        with pytest.raises(DecodeError):
            await management.read("thing", "a", timeout=20)
        del node.answer
        assert await management.read("thing", "b", timeout=20) == {"name": "b"}


async def test_a_request_has_the_time_of_the_client_or_its_own(node: Node) -> None:
    node.answer = lambda request: None  # type: ignore[method-assign]
    async with ferrymq.connect(node.url) as connection:
        async with connection.management(timeout=20) as patient:
            with pytest.raises(TimeoutError):
                await patient.read("thing", "a", timeout=0.01)
            # What comes late is for nobody.
            node.respond(node.response(node.requests[0], {"statusCode": 200}, {"name": "late"}))
            del node.answer
            assert await patient.read("thing", "b") == {"name": "b"}
            with pytest.raises(ValueError, match="-1"):
                await patient.read("thing", "c", timeout=-1)
        with pytest.raises(ValueError, match="-1"):
            connection.management(timeout=-1)
    node.answer = lambda request: None  # type: ignore[method-assign]
    async with (
        ferrymq.connect(node.url) as connection,
        connection.management(timeout=0.5) as hasty,
    ):
        with pytest.raises(TimeoutError):
            await hasty.read("thing", "a")


async def test_the_end_of_a_link_ends_what_waits(node: Node) -> None:
    node.answer = lambda request: None  # type: ignore[method-assign]
    async with ferrymq.connect(node.url) as connection:
        management = await connection.management()
        waiting = asyncio.ensure_future(management.read("thing", "a"))
        await node.seen(events.DeliveryReceived)
        node.outgoing[0].close(Error(condition="amqp:resource-deleted"))
        node.connection.process()
        with pytest.raises(LinkDetached, match="resource-deleted"):
            await waiting
        assert management.closed
        with pytest.raises(LinkDetached):
            await management.read("thing", "a")
        await management.close()


@pytest.mark.parametrize("replies", ["link", "dynamic"])
async def test_a_connection_that_is_restored_carries_requests_again(
    node: Node, replies: Replies
) -> None:
    node.answer = lambda request: None  # type: ignore[method-assign]
    policy = ferrymq.ReconnectPolicy(initial=0.01)
    async with (
        ferrymq.connect(node.url, reconnect=policy) as connection,
        connection.management(replies=replies) as management,
    ):
        waiting = asyncio.ensure_future(management.read("thing", "a"))
        await node.seen(events.DeliveryReceived)
        node.connection.transport.abort()
        with pytest.raises(ConnectionClosed):
            await waiting
        del node.answer
        assert await management.read("thing", "b", timeout=20) == {"name": "b"}


async def test_a_fence_whose_response_is_lost_is_not_waited_for(node: Node) -> None:
    node.answer = lambda request: None  # type: ignore[method-assign]
    policy = ferrymq.ReconnectPolicy(initial=0.01)
    async with ferrymq.connect(node.url, reconnect=policy) as connection:
        asked = asyncio.ensure_future(connection.fence("group", "member"))
        await node.seen(events.DeliveryReceived)
        node.connection.transport.abort()
        async with asyncio.timeout(20):
            with pytest.raises(ConnectionClosed):
                await asked
        node.answer = lambda request: node.response(  # type: ignore[method-assign]
            request, {"statusCode": 404}
        )
        assert await connection.fence("group", "member") is None


# -- without an event loop -------------------------------------------------------------------


@pytest.fixture
def url() -> Iterator[str]:
    """A broker in another thread's event loop."""
    portal = Portal("broker")
    server = portal.run(BrokerServer(LOCAL).__aenter__)
    yield server.url
    portal.run(lambda: server.__aexit__(None, None, None))
    portal.stop()


@ways
def test_every_operation_without_a_loop(url: str, replies: Replies) -> None:
    with (
        blocking.connect(url, desired_capabilities=[LINK_PAIR]) as connection,
        connection.management(replies=replies) as management,
    ):
        assert (management.replies, management.address) == (replies, "$management")
        assert management.create("queue", "orders", {"max-length": 5})["max-length"] == 5
        assert management.update("queue", "orders", {"max-length": 6})["max-length"] == 6
        assert management.read("queue", "orders")["name"] == "orders"
        connection.sender("orders").send(Message("one"))
        (peeked,) = management.peek("queue", "orders")
        assert peeked.message.body == "one"
        management.create("queue", "moved")
        assert management.move("orders", "moved").count == 1
        rows = list(management.query("queue", ["name", "available"]))
        assert {"name": "moved", "available": 1} in rows
        assert {"name": "orders", "available": 0} in rows
        assert management.purge("queue", "moved") == 1
        assert management.delete("queue", "orders", if_empty=True).status == 204
        with pytest.raises(ManagementError, match="no queue") as caught:
            management.read("queue", "orders")
        assert caught.value.status == 404
        assert management.request("READ", "broker", "broker").status == 200
    assert management.closed


def test_a_pair_without_a_loop(url: str) -> None:
    request = Message(
        {},
        application_properties={"operation": "READ", "type": "broker", "name": "broker"},
    )
    with (
        blocking.connect(url, desired_capabilities=[LINK_PAIR]) as connection,
        connection.pair("$management") as pair,
    ):
        assert pair.address == "$management" and not pair.closed
        assert pair.request(request, timeout=20).application_properties["statusCode"] == 200
    assert pair.closed
