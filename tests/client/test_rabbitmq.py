"""RabbitMQ's management, addresses and streams, with a peer that answers as RabbitMQ 4.0.5 did."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import ferrymq
import ferrymq.rabbitmq.blocking
from ferrymq import Message, rabbitmq
from ferrymq.engine import SenderLink, events
from ferrymq.engine.pairing import PAIRED
from ferrymq_codec.scalars import Described, Symbol, Timestamp, UInt, ULong
from ferrymq_types.messaging import Source, Target
from ferrymq_types.transport import Error, SenderSettleMode
from tests.client.keeper import POLICY
from tests.client.peer import Peer, PeerConnection
from tests.client.test_blocking_parity import for_users, parameters

PAGE = Path(__file__).parents[2] / "docs/client/rabbitmq.md"
QUEUE = {
    "leader": "rabbit@host",
    "replicas": ["rabbit@host"],
    "message_count": ULong(2),
    "consumer_count": UInt(0),
    "name": "my queue",
    "vhost": "/",
    "durable": True,
    "auto_delete": False,
    "exclusive": False,
    "type": "quorum",
    "arguments": {"x-queue-type": "quorum"},
}
BINDING = {"source": "x;1", "destination_queue": "q", "binding_key": "eu.#", "arguments": {}}
UNKNOWN = Error(condition="amqp:internal-error", description="function_clause")
REFUSED = Error(
    condition="amqp:unauthorized-access",
    description="configure access to queue 'other' in vhost '/' refused for user 'lim'",
)
TRANSCRIPT: dict[tuple[str, str], tuple[str, object] | Error] = {
    ("PUT", "/queues/my%20queue"): ("201", QUEUE),
    ("PUT", "/queues/orders"): ("201", {**QUEUE, "name": "orders"}),
    ("PUT", "/queues/clicks"): ("201", {**QUEUE, "name": "clicks", "type": "stream"}),
    ("PUT", "/queues/european%20sales"): ("201", QUEUE),
    ("PUT", "/exchanges/sales"): ("204", None),
    ("PUT", "/queues/other"): REFUSED,
    ("PUT", "/queues/taken"): ("409", "inequivalent arg 'durable' for queue 'taken' in vhost '/'"),
    ("PUT", "/queues/amq.x"): ("403", "queue 'amq.x' in vhost '/' starts with reserved prefix"),
    ("GET", "/queues/my%20queue"): ("200", QUEUE),
    ("GET", "/queues/nope"): ("404", "queue 'nope' in vhost '/' not found"),
    ("DELETE", "/queues/my%20queue"): ("200", {"message_count": ULong(7)}),
    ("DELETE", "/queues/my%20queue/messages"): ("200", {"message_count": ULong(2)}),
    ("DELETE", "/queues/nope/messages"): ("400", "no queue 'nope' in vhost '/'"),
    ("PUT", "/exchanges/x%3B1"): ("204", None),
    ("PUT", "/exchanges/x2"): ("400", "unknown exchange type 'nonsense'"),
    ("DELETE", "/exchanges/x%3B1"): ("204", None),
    ("POST", "/bindings"): ("204", None),
    ("GET", "/bindings?src=x%3B1&dstq=q&key=eu.%23"): (
        "200",
        [
            {**BINDING, "location": "/bindings/src=x%3B1;dstq=q;key=eu.%23;args="},
            {
                **BINDING,
                "arguments": {"a": 1},
                "location": "/bindings/src=x%3B1;dstq=q;key=eu.%23;args=Ajat_Q",
            },
        ],
    ),
    ("GET", "/bindings?src=x%3B1&dste=other&key="): ("200", []),
    ("DELETE", "/bindings/src=x%3B1;dstq=q;key=eu.%23;args="): ("204", None),
    ("DELETE", "/bindings/src=x%3B1;dstq=q;key=eu.%23;args=Ajat_Q"): ("204", None),
}


class RabbitMQ(Peer):
    """Has a management node, which ends the session of requests that it does not know."""

    def __init__(self, version: str = "4.0.5") -> None:
        super().__init__(properties={"product": "RabbitMQ", "version": version})
        self.requests: list[Message] = []
        self.halves: dict[bool, Any] = {}
        self.sessions = 0
        self.on[events.BeginReceived] = self.begun
        self.on[events.AttachReceived] = self.attached
        self.on[events.DeliveryReceived] = self.requested

    def begun(self, connection: PeerConnection, event: events.BeginReceived) -> None:
        self.sessions += 1
        event.session.accept()

    def attached(self, connection: PeerConnection, event: events.AttachReceived) -> None:
        remote = event.link.remote_attach
        assert remote is not None
        if remote.properties != {PAIRED: True}:
            self.attach(connection, event)
            return
        assert remote.snd_settle_mode is SenderSettleMode.SETTLED
        assert isinstance(remote.source, Source) and isinstance(remote.target, Target)
        ours = remote.source if event.link.is_sender else remote.target
        assert ours.address == "/management"
        self.halves[event.link.is_sender] = event.link
        self.attach(connection, event, properties={PAIRED: True})

    def requested(self, connection: PeerConnection, event: events.DeliveryReceived) -> None:
        request = Message.decode(event.delivery.payload)
        if not event.link.paired:
            self.default(connection, event)
            return
        # RabbitMQ 4.0 ends the session with a badmatch for a request that is not settled.
        assert event.delivery.remote_settled and request.reply_to == "$me"
        self.requests.append(request)
        answer = TRANSCRIPT.get((request.subject or "", request.to or ""), UNKNOWN)
        link = self.halves[True]
        assert isinstance(link, SenderLink)
        if isinstance(answer, Error):
            event.link.session.end(answer)
            return
        status, body = answer
        response = Message(
            body,
            subject=status,
            correlation_id=request.message_id,
            application_properties={"http:response": "1.1"},
        )
        link.send(response.encode(), settled=True)

    @property
    def said(self) -> list[tuple[str | None, str | None, object]]:
        """Verb, path and body of each request."""
        return [(one.subject, one.to, one.body) for one in self.requests]


@pytest.fixture
async def rabbit() -> AsyncIterator[RabbitMQ]:
    async with RabbitMQ() as running:
        yield running


@pytest.fixture
async def management(rabbit: RabbitMQ) -> AsyncIterator[rabbitmq.Management]:
    async with (
        ferrymq.connect(rabbit.url) as connection,
        rabbitmq.management(connection, timeout=20) as opened,
    ):
        yield opened


async def test_declaring_a_queue(rabbit: RabbitMQ, management: rabbitmq.Management) -> None:
    queue = await management.declare_queue(
        "my queue",
        type="quorum",
        delivery_limit=5,
        message_ttl=timedelta(minutes=1),
        expires=3600,
        arguments={"x-max-in-memory-length": 3},
    )
    assert rabbit.said == [
        (
            "PUT",
            "/queues/my%20queue",
            {
                "durable": True,
                "exclusive": False,
                "auto_delete": False,
                "arguments": {
                    "x-max-in-memory-length": 3,
                    "x-queue-type": "quorum",
                    "x-delivery-limit": 5,
                    "x-message-ttl": 60_000,
                    "x-expires": 3_600_000,
                },
            },
        )
    ]
    assert queue == rabbitmq.QueueInfo(
        name="my queue",
        type="quorum",
        durable=True,
        exclusive=False,
        auto_delete=False,
        arguments={"x-queue-type": "quorum"},
        message_count=2,
        consumer_count=0,
        vhost="/",
        leader="rabbit@host",
        replicas=["rabbit@host"],
    )
    assert await management.get_queue("my queue") == queue


async def test_the_age_of_a_stream(rabbit: RabbitMQ, management: rabbitmq.Management) -> None:
    await management.declare_queue("my queue", type="stream", max_age=timedelta(days=1))
    (request,) = rabbit.requests
    assert isinstance(request.body, dict)
    assert request.body["arguments"] == {"x-queue-type": "stream", "x-max-age": "86400s"}


async def test_messages_of_queues(management: rabbitmq.Management) -> None:
    assert await management.purge_queue("my queue") == 2
    assert await management.delete_queue("my queue") == 7


async def test_exchanges_and_bindings(rabbit: RabbitMQ, management: rabbitmq.Management) -> None:
    await management.declare_exchange("x;1", type="topic")
    await management.bind("x;1", queue="q", key="eu.#", arguments={"a": 1})
    found = await management.bindings("x;1", queue="q", key="eu.#")
    assert [(one.source, one.queue, one.exchange, one.arguments) for one in found] == [
        ("x;1", "q", None, {}),
        ("x;1", "q", None, {"a": 1}),
    ]
    assert await management.bindings("x;1", exchange="other") == []
    await management.unbind("x;1", queue="q", key="eu.#", arguments={"a": 1})
    await management.delete_exchange("x;1")
    assert rabbit.said[1] == (
        "POST",
        "/bindings",
        {"source": "x;1", "destination_queue": "q", "binding_key": "eu.#", "arguments": {"a": 1}},
    )
    assert [path for verb, path, _ in rabbit.said if verb == "DELETE"] == [
        "/bindings/src=x%3B1;dstq=q;key=eu.%23;args=Ajat_Q",
        "/exchanges/x%3B1",
    ]
    with pytest.raises(TypeError, match="give queue= or exchange="):
        await management.bind("x;1", key="eu.#")


async def test_refusals_are_typed(management: rabbitmq.Management) -> None:
    with pytest.raises(rabbitmq.PreconditionFailed, match="inequivalent") as conflict:
        await management.declare_queue("taken", durable=False)
    assert conflict.value.status == 409
    assert isinstance(conflict.value, ferrymq.ManagementError)
    with pytest.raises(rabbitmq.NotFound, match="not found"):
        await management.get_queue("nope")
    with pytest.raises(rabbitmq.NotFound, match="no queue 'nope'"):
        await management.purge_queue("nope")
    with pytest.raises(rabbitmq.BadRequest, match="unknown exchange type"):
        await management.declare_exchange("x2", type="nonsense")
    with pytest.raises(rabbitmq.AccessRefused, match="reserved prefix"):
        await management.declare_queue("amq.x")


async def test_a_refusal_that_ends_the_session(
    rabbit: RabbitMQ, management: rabbitmq.Management
) -> None:
    """Requests of other tasks are not on that session, and later ones have a new one."""
    bad, good = await asyncio.gather(
        management.declare_queue("other"), management.get_queue("my queue"), return_exceptions=True
    )
    assert isinstance(bad, rabbitmq.AccessRefused) and bad.status == 403
    assert bad.description == REFUSED.description
    assert isinstance(good, rabbitmq.QueueInfo)
    with pytest.raises(ferrymq.SessionEnded, match="function_clause"):
        await management.request("GET", "/nonsense")
    assert (await management.get_queue("my queue")).message_count == 2
    assert rabbit.sessions == 3


async def test_after_a_reconnect(rabbit: RabbitMQ) -> None:
    async with (
        ferrymq.connect(rabbit.url, reconnect=POLICY) as connection,
        rabbitmq.management(connection) as management,
    ):
        await management.get_queue("my queue")
        rabbit.connection.transport.abort()
        await rabbit.seen(events.OpenReceived, 2)
        assert (await management.get_queue("my queue")).name == "my queue"


async def test_closing(management: rabbitmq.Management) -> None:
    await management.close()
    assert management.closed
    with pytest.raises(ferrymq.LinkDetached, match="closed on this side"):
        await management.get_queue("my queue")


async def test_an_old_rabbitmq() -> None:
    async with RabbitMQ("3.10.8") as old, ferrymq.connect(old.url) as connection:
        with pytest.raises(ferrymq.LinkDetached, match=r"3\.10\.8 has no management.*4\.0"):
            await rabbitmq.management(connection)


async def test_with_threads(rabbit: RabbitMQ) -> None:
    def use() -> tuple[str, int, bool]:
        with ferrymq.blocking.connect(rabbit.url) as connection:
            with ferrymq.rabbitmq.blocking.management(connection) as management:
                queue = management.declare_queue("my queue", type="quorum")
                with pytest.raises(rabbitmq.NotFound):
                    management.get_queue("nope")
            return queue.name, queue.message_count, management.closed

    assert await asyncio.to_thread(use) == ("my queue", 2, True)


async def test_the_page(rabbit: RabbitMQ, capsys: pytest.CaptureFixture[str]) -> None:
    """Its code runs as it is written, but for the URL; it was run with RabbitMQ 4.0.5 too."""
    functions: dict[str, Any] = {"__name__": "page"}
    for code in re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.S):
        here = code.replace("amqp://guest:guest@localhost", rabbit.url)
        exec(compile(here, "rabbitmq.md", "exec"), functions)
    rabbit.put("/queues/european%20sales", "a teapot")
    click = Message("a click", message_annotations={"x-stream-offset": ULong(7)})
    rabbit.messages["/queues/clicks"].append(click.encode())
    await functions["declare_and_send"]()
    await functions["send_to_shop"]()
    await asyncio.to_thread(functions["declare_orders"])
    async with ferrymq.connect(rabbit.url) as connection:
        async with rabbitmq.management(connection) as management:
            await functions["declare"](management)
        reading = asyncio.create_task(functions["read_clicks"](connection))
        seen = ""
        while "a click" not in seen:
            await asyncio.sleep(0.01)
            seen += capsys.readouterr().out
        reading.cancel()
        await asyncio.wait([reading])
    assert seen == "a teapot\norders has 2\n7 a click\n"
    assert [one.body for one in rabbit.received["/exchanges/sales/eu.fr"]] == ["a teapot"]


def test_both_faces_are_the_same() -> None:
    theirs = for_users(rabbitmq.Management)
    ours = for_users(ferrymq.rabbitmq.blocking.Management)
    assert theirs.keys() == ours.keys()
    for name in theirs.keys() - {"closed"}:
        assert parameters(theirs[name]) == parameters(ours[name])


async def test_mistakes_in_arguments(management: rabbitmq.Management) -> None:
    with pytest.raises(TypeError, match=r"'max_lenght': did you mean max_length=\?"):
        await management.declare_queue("q", max_lenght=5)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="none of 'classic'"):
        await management.declare_queue("q", type="lazy")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="message_ttl"):
        await management.declare_queue("q", message_ttl=-1)
    with pytest.raises(ValueError, match="the queue is empty"):
        await management.get_queue("")


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        (rabbitmq.queue_address("my queue"), "/queues/my%20queue"),
        (rabbitmq.queue_address("a/b?c;d%ü"), "/queues/a%2Fb%3Fc%3Bd%25%C3%BC"),
        (rabbitmq.queue_address("a-b_c.d~e"), "/queues/a-b_c.d~e"),
        (rabbitmq.exchange_address("sales"), "/exchanges/sales"),
        (rabbitmq.exchange_address("sales", ""), "/exchanges/sales"),
        (rabbitmq.exchange_address("s/1", "eu/fr #"), "/exchanges/s%2F1/eu%2Ffr%20%23"),
        (rabbitmq.vhost("a b"), "vhost:a b"),
    ],
)
def test_addresses(address: str, expected: str) -> None:
    assert address == expected


def test_names_that_are_none() -> None:
    with pytest.raises(ValueError, match="name of the queue is empty"):
        rabbitmq.queue_address("")
    with pytest.raises(ValueError, match="use queue_address"):
        rabbitmq.exchange_address("", "q")
    with pytest.raises(ValueError, match="virtual host"):
        rabbitmq.vhost("")


NOON = datetime(2026, 11, 26, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("offset", "value"),
    [
        ("first", "first"),
        ("next", "next"),
        (7, 7),
        (NOON, Timestamp.from_datetime(NOON)),
        (timedelta(minutes=2), "120s"),
    ],
)
def test_places_in_streams(offset: rabbitmq.StreamOffset, value: object) -> None:
    name = "rabbitmq:stream-offset-spec"
    (filters,) = rabbitmq.stream_options(offset=offset).values()
    assert filters == {name: Described(Symbol(name), value)}


async def test_options_of_streams_on_the_wire(rabbit: RabbitMQ) -> None:
    options = rabbitmq.stream_options(
        offset=3, filter_values=["red", "blue"], match_unfiltered=True
    )
    async with ferrymq.connect(rabbit.url) as connection:
        await connection.receiver(rabbitmq.queue_address("clicks"), credit=5, **options)
        event = await rabbit.seen(events.AttachReceived)
        assert event.link.remote_attach is not None
        source = event.link.remote_attach.source
        assert isinstance(source, Source) and source.filter is not None
        filters = source.filter.items()
        assert {name: one.value for name, one in filters if isinstance(one, Described)} == {
            "rabbitmq:stream-offset-spec": 3,
            "rabbitmq:stream-filter": ["red", "blue"],
            "rabbitmq:stream-match-unfiltered": True,
        }


def test_mistakes_about_streams() -> None:
    with pytest.raises(ValueError, match="did you mean first"):
        rabbitmq.stream_options(offset="frist")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="negative"):
        rabbitmq.stream_options(offset=-1)
    with pytest.raises(ValueError, match="time zone"):
        rabbitmq.stream_options(offset=datetime(2026, 1, 1))
    with pytest.raises(ValueError, match="without filter_values"):
        rabbitmq.stream_options(match_unfiltered=True)


async def test_the_node_of_other_brokers_is_not_asked_for() -> None:
    lacking = r"'\$management'.*RabbitMQ 4.0.5 has no such node: use ferrymq.rabbitmq.management"
    async with (
        Peer(properties={"product": "RabbitMQ", "version": "4.0.5"}) as peer,
        ferrymq.connect(peer.url) as connection,
    ):
        with pytest.raises(ferrymq.LinkDetached, match=lacking):
            await connection.management()
    assert not [one for one in peer.events if isinstance(one, events.AttachReceived)]
