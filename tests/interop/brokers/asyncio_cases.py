"""Cases for a program of asyncio on a broker, a coroutine for each.

A case gets a `Site` and the address of a queue of its own. It raises if the broker, or the client,
does not do what a user expects. They are in one module because the page has them in one table.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Any

import ferrymq
from ferrymq import (
    Connection,
    Delivery,
    DeliveryReleased,
    Message,
    Receiver,
    ReconnectPolicy,
    TransactionRolledBack,
    Worker,
    rabbitmq,
)
from ferrymq_codec import Described, Symbol
from ferrymq_types.transport import SenderSettleMode
from tests.interop.brokers.sites import OPEN_QUEUE, Site
from tests.interop.brokers.tools import (
    ARRAYS,
    PATIENCE,
    PRIMITIVES,
    WATCH,
    expect,
    expect_all,
    fill,
    take,
    texts,
)


async def connected(site: Site, user: str = "alice", **options: Any) -> Connection:
    """Connect as the user."""
    return await ferrymq.connect(site.url(user), timeout=10, **options)


async def fails(awaitable: Any, kind: type[BaseException], *words: str) -> None:
    """Expect an error of the kind, whose text has the words."""
    try:
        result = await awaitable
    except kind as error:
        for word in words:
            assert word in str(error), f"the error does not say {word!r}: {error}"
    else:
        raise AssertionError(f"it was not refused: {result!r}")


async def some(receiver: Receiver, count: int) -> list[Any]:
    """Take messages, each accepted before the next, and return their bodies."""
    bodies = []
    for _ in range(count):
        async with await receiver.receive(timeout=PATIENCE) as delivery:
            bodies.append(delivery.message.body)
    return bodies


# ── Connecting ───────────────────────────────────────────────────────────────────────────────────


async def anonymous(site: Site, queue: str) -> None:
    """A connection without a name, by SASL ANONYMOUS."""
    async with await ferrymq.connect(site.url(None), timeout=10) as connection:
        await fill(connection, queue, ["a"])


async def plain(site: Site, queue: str) -> None:
    """A user with a password."""
    assert site.users, "the broker knows no users"
    async with await connected(site) as connection:
        await fill(connection, queue, ["a"])


async def plain_wrong(site: Site, queue: str) -> None:
    """A wrong password is refused, and the error says so."""
    assert site.users, "the broker knows no users"
    wrong = ferrymq.connect(site.url(password="wrong"), timeout=10)
    await fails(wrong, ferrymq.AuthenticationError, "alice", "credentials are wrong")


async def tls(site: Site, queue: str) -> None:
    """TLS with the authority of the broker's certificate."""
    assert site.pki is not None, "the broker has no TLS"
    context = site.pki.trusting()
    async with await ferrymq.connect(site.url(tls=True), ssl=context, timeout=10) as connection:
        await fill(connection, queue, ["a"])


async def tls_wrong_authority(site: Site, queue: str) -> None:
    """A certificate of an authority that the client does not know is refused."""
    assert site.pki is not None, "the broker has no TLS"
    wrong = ferrymq.connect(site.url(tls=True), timeout=10)
    await fails(wrong, ferrymq.TransportError, "certificate")


async def tls_to_plain(site: Site, queue: str) -> None:
    """TLS to a port without TLS fails at once, and the error says why."""
    url = site.url().replace("amqp:", "amqps:")
    await fails(ferrymq.connect(url, timeout=10), ferrymq.TransportError, "TLS")


# ── Sending ──────────────────────────────────────────────────────────────────────────────────────


async def send(site: Site, queue: str) -> None:
    """Messages one by one, each accepted before the next."""
    async with await connected(site) as connection, await connection.sender(queue) as sender:
        for body in texts(5):
            await sender.send(body)
    expect_all(await take(site, queue, 5), texts(5))


async def send_settled(site: Site, queue: str) -> None:
    """Messages without an outcome."""
    async with await connected(site) as connection, await connection.sender(queue) as sender:
        for body in texts(50):
            await sender.send(body, settled=True)
    expect_all(await take(site, queue, 50), texts(50))


async def send_many(site: Site, queue: str) -> None:
    """A thousand messages at once."""
    async with await connected(site) as connection:
        await fill(connection, queue, texts(1000))
    expect_all(await take(site, queue, 1000), texts(1000))


async def properties(site: Site, queue: str) -> None:
    """Header and properties arrive as they were sent."""
    sent = Message("body", durable=True, priority=7, ttl=600, message_id="id", to=queue,
                   subject="s", reply_to="r", correlation_id="c", content_type="text/plain",
                   group_id="g", group_sequence=3,
                   reply_to_group_id="rg", creation_time=1_700_000_000_000)  # fmt: skip
    if site.users:
        sent.user_id = b"alice"
    got = await _through(site, queue, sent)
    for name in ("body", "durable", "priority", "message_id", "subject", "reply_to", "user_id",
                 "correlation_id", "content_type", "group_id",
                 "group_sequence", "reply_to_group_id", "creation_time", "to"):  # fmt: skip
        expect(getattr(got, name), getattr(sent, name), name)


async def _through(site: Site, queue: str, message: Message, **options: Any) -> Message:
    """Send a message to the queue, and return what comes out."""
    async with await connected(site, **options) as connection:
        async with await connection.sender(queue, timeout=PATIENCE) as sender:
            await sender.send(message, timeout=20)
        async with (
            await connection.receiver(queue, credit=1) as receiver,
            await receiver.receive(timeout=20) as delivery,
        ):
            return delivery.message


# ── Receiving ────────────────────────────────────────────────────────────────────────────────────


async def _prefetch(site: Site, queue: str, credit: int) -> None:
    async with await connected(site) as connection:
        await fill(connection, queue, texts(3000))
        async with await connection.receiver(queue, credit=credit) as receiver:
            bodies = await some(receiver, 3000)
    expect_all(bodies, texts(3000))


async def prefetch_2(site: Site, queue: str) -> None:
    """3 000 messages with a credit of 2."""
    await _prefetch(site, queue, 2)


async def prefetch_10(site: Site, queue: str) -> None:
    """3 000 messages with a credit of 10."""
    await _prefetch(site, queue, 10)


async def prefetch_100(site: Site, queue: str) -> None:
    """3 000 messages with a credit of 100."""
    await _prefetch(site, queue, 100)


async def receive_settled(site: Site, queue: str) -> None:
    """A receiver that asks for settled messages gets them settled."""
    async with await connected(site) as connection:
        await fill(connection, queue, texts(3))
        settled = SenderSettleMode.SETTLED
        async with await connection.receiver(queue, snd_settle_mode=settled) as receiver:
            deliveries = [await receiver.receive(timeout=PATIENCE) for _ in range(3)]
            expect([delivery.settled for delivery in deliveries], [True] * 3, "settled")


async def close_gives_back(site: Site, queue: str) -> None:
    """What a receiver has prefetched goes to the next one on the same connection."""
    async with await connected(site) as connection:
        await fill(connection, queue, texts(6))
        async with await connection.receiver(queue, credit=4) as receiver:
            first = await some(receiver, 1)
        async with await connection.receiver(queue) as receiver:
            rest = await some(receiver, 5)
    expect_all([*first, *sorted(rest)], texts(6))


async def accept(site: Site, queue: str) -> None:
    """An accepted message is gone."""
    async with await connected(site) as connection:
        await fill(connection, queue, ["a"])
        async with await connection.receiver(queue, credit=1) as receiver:
            await (await receiver.receive(timeout=PATIENCE)).accept()
    expect(await take(site, queue, 0), [], "messages left")


async def reject(site: Site, queue: str) -> None:
    """A rejected message does not come again: it is dropped, or a dead letter."""
    async with await connected(site) as connection:
        await fill(connection, queue, ["a"])
        async with await connection.receiver(queue, credit=1) as receiver:
            await (await receiver.receive(timeout=PATIENCE)).reject("my:reason", "not today")
    expect(await take(site, queue, 0), [], "messages left")


async def release(site: Site, queue: str) -> None:
    """A released message comes again."""
    async with await connected(site) as connection:
        await fill(connection, queue, ["a"])
        async with await connection.receiver(queue, credit=1) as receiver:
            await (await receiver.receive(timeout=PATIENCE)).release()
    expect_all(await take(site, queue, 1), ["a"])


async def modify(site: Site, queue: str) -> None:
    """A message modified as failed comes again."""
    async with await connected(site) as connection:
        await fill(connection, queue, ["a"])
        async with await connection.receiver(queue, credit=1) as receiver:
            await (await receiver.receive(timeout=PATIENCE)).modify(delivery_failed=True)
    expect_all(await take(site, queue, 1), ["a"])


# ── Sizes ────────────────────────────────────────────────────────────────────────────────────────


async def _size(site: Site, queue: str, size: int, frame: int) -> None:
    got = await _through(site, queue, Message(b"x" * size), max_frame_size=frame)
    expect(len(got.body), size, "bytes")


async def mebibyte_small_frames(site: Site, queue: str) -> None:
    """1 MiB in frames of 512 B."""
    await _size(site, queue, 1 << 20, 512)


async def ten_mebibytes(site: Site, queue: str) -> None:
    """10 MiB in frames of 64 KiB."""
    await _size(site, queue, 10 << 20, 1 << 16)


async def ten_mebibytes_large_frames(site: Site, queue: str) -> None:
    """10 MiB in frames of up to 1 MiB."""
    await _size(site, queue, 10 << 20, 1 << 20)


# ── Types ────────────────────────────────────────────────────────────────────────────────────────


async def primitives_in_body(site: Site, queue: str) -> None:
    """Each primitive type as the body, with the type that it had."""
    async with (
        await connected(site) as connection,
        await connection.sender(queue) as sender,
        await connection.receiver(queue, credit=1) as receiver,
    ):
        for name, value in PRIMITIVES.items():
            if name in ("null", "binary"):
                continue
            await sender.send(Message(value), timeout=PATIENCE)
            async with await receiver.receive(timeout=PATIENCE) as delivery:
                got = delivery.message.body
            expect((type(got), got), (type(value), value), name)


async def primitives_in_properties(site: Site, queue: str) -> None:
    """Each primitive type in application-properties, with the type that it had."""
    got = (
        await _through(site, queue, Message("x", application_properties=PRIMITIVES))
    ).application_properties
    for name, value in PRIMITIVES.items():
        expect((type(got.get(name)), got.get(name)), (type(value), value), name)


async def list_in_body(site: Site, queue: str) -> None:
    """A list with a list in it."""
    expect((await _through(site, queue, Message([1, ["a", None]]))).body, [1, ["a", None]], "body")


async def map_in_body(site: Site, queue: str) -> None:
    """A map with a map in it."""
    body = {"a": 1, "b": {"c": [True]}}
    expect((await _through(site, queue, Message(body))).body, body, "body")


async def arrays_in_annotations(site: Site, queue: str) -> None:
    """Arrays of most types in message-annotations."""
    got = (
        await _through(site, queue, Message("x", message_annotations=ARRAYS))
    ).message_annotations
    for name, value in ARRAYS.items():
        expect(got.get(name), value, name)


async def arrays_in_body(site: Site, queue: str) -> None:
    """An array of numbers as the body."""
    value = ARRAYS["x-opt-int"]
    expect((await _through(site, queue, Message(value))).body, value, "body")


# ── Requests ─────────────────────────────────────────────────────────────────────────────────────


async def _answer(connection: Connection, queue: str) -> None:
    async with (
        await connection.receiver(queue) as requests,
        await requests.receive(timeout=PATIENCE) as delivery,
    ):
        asked = delivery.message
        identity = asked.correlation_id or asked.message_id
        async with await connection.sender(asked.reply_to) as replies:
            await replies.send(Message(asked.body + "!", correlation_id=identity))


async def dynamic_queue(site: Site, queue: str) -> None:
    """A queue that the broker makes for replies."""
    async with (
        await connected(site) as connection,
        await connection.receiver(None, dynamic=True, timeout=PATIENCE) as replies,
    ):
        assert replies.address
        await fill(connection, replies.address, ["a"])
        expect(await some(replies, 1), ["a"], "bodies")


async def request(site: Site, queue: str) -> None:
    """`connection.request`, answered on another connection."""
    async with await connected(site) as connection, await connected(site) as other:
        answering = asyncio.ensure_future(_answer(other, queue))
        try:
            reply = await connection.request(queue, Message("a"), timeout=PATIENCE)
            expect(reply.body, "a!", "reply")
            await answering
        finally:
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)


# ── Browsing ─────────────────────────────────────────────────────────────────────────────────────


async def browse(site: Site, queue: str) -> None:
    """All messages are seen, none is taken."""
    async with await connected(site) as connection:
        await fill(connection, queue, texts(6))
        async with await connection.receiver(queue, mode="copy") as receiver:
            seen = await some(receiver, 6)
    expect_all(seen, texts(6))
    expect_all(await take(site, queue, 6), texts(6))


async def browse_settled(site: Site, queue: str) -> None:
    """The same, with settled messages asked for."""
    async with await connected(site) as connection:
        await fill(connection, queue, texts(6))
        settled = SenderSettleMode.SETTLED
        async with await connection.receiver(
            queue, mode="copy", snd_settle_mode=settled
        ) as receiver:
            for _ in range(6):
                await receiver.receive(timeout=PATIENCE)
    expect_all(await take(site, queue, 6), texts(6))


async def browse_part(site: Site, queue: str) -> None:
    """A browser that looks at some and is closed takes none, on the same connection too."""
    async with await connected(site) as connection:
        await fill(connection, queue, texts(6))
        async with await connection.receiver(queue, mode="copy", credit=4) as receiver:
            await some(receiver, 2)
        async with await connection.receiver(queue) as receiver:
            bodies = await some(receiver, 6)
    expect_all(bodies, texts(6))


async def browse_lost(site: Site, queue: str) -> None:
    """A browser whose connection is lost has taken nothing."""
    async with await connected(site) as connection:
        await fill(connection, queue, texts(6))
    connection = await connected(site)
    receiver = await connection.receiver(queue, mode="copy")
    for _ in range(6):
        await receiver.receive(timeout=PATIENCE)
    transport = connection.transport
    assert transport is not None
    transport.abort()
    with suppress(ferrymq.ConnectionClosed):
        await connection.wait_closed(timeout=PATIENCE)
    expect_all(await take(site, queue, 6), texts(6))


# ── Filters ──────────────────────────────────────────────────────────────────────────────────────


async def selector(site: Site, queue: str) -> None:
    """A selector is applied; or refused, and nothing is taken."""
    async with await connected(site) as connection:
        async with await connection.sender(queue) as sender:
            for colour in ("red", "blue", "red", "blue"):
                await sender.send(Message(colour, application_properties={"colour": colour}))
        async with await connection.receiver(
            queue, selector="colour = 'blue'", timeout=PATIENCE
        ) as receiver:
            seen = await some(receiver, 2)
    expect(seen, ["blue", "blue"], "selected")
    expect_all(await take(site, queue, 2), ["red", "red"])


async def _stream(site: Site, stream: str, start: Any, **options: Any) -> list[Any]:
    async with await connected(site) as connection:
        await fill(connection, stream, texts(6))
        bodies: list[Any] = []
        async with await connection.receiver(stream, start=start, timeout=PATIENCE, **options) as r:
            if start == "next":
                await fill(connection, stream, ["later"])
            try:
                while True:
                    wait = WATCH if bodies else PATIENCE
                    async with await r.receive(timeout=wait) as delivery:
                        bodies.append(delivery.message.body)
            except TimeoutError:
                return bodies


async def stream_first(site: Site, stream: str) -> None:
    """A stream from its first message."""
    expect_all(await _stream(site, stream, "first"), texts(6))


async def stream_offset(site: Site, stream: str) -> None:
    """A stream from an offset."""
    expect_all(await _stream(site, stream, 2), texts(6)[2:])


async def stream_next(site: Site, stream: str) -> None:
    """A stream from the next message that is appended."""
    expect_all(await _stream(site, stream, "next"), ["later"])


async def stream_by_filter(site: Site, stream: str) -> None:
    """A stream from an offset, by the filter that RabbitMQ's own clients send."""
    name = "rabbitmq:stream-offset-spec"
    filters: dict[str, object] = {name: Described(Symbol(name), 2)}
    expect_all(await _stream(site, stream, None, filters=filters), texts(6)[2:])


# ── Transactions, the anonymous terminus, drain ──────────────────────────────────────────────────


async def commit(site: Site, queue: str) -> None:
    """Messages of a transaction come with its commit."""
    async with (
        await connected(site) as connection,
        await connection.sender(queue) as sender,
        connection.transaction(timeout=PATIENCE) as transaction,
    ):
        await sender.send("a", transaction=transaction)
        await sender.send("b", transaction=transaction)
    expect_all(await take(site, queue, 2), ["a", "b"])


async def rollback(site: Site, queue: str) -> None:
    """A transaction that fails leaves nothing, and gives back what it has taken."""
    async with await connected(site) as connection, await connection.sender(queue) as sender:
        await sender.send("there")
        try:
            async with (
                connection.transaction(timeout=PATIENCE) as transaction,
                await connection.receiver(queue, credit=1) as receiver,
            ):
                delivery = await receiver.receive(timeout=PATIENCE)
                await delivery.accept(transaction=transaction)
                await sender.send("never", transaction=transaction)
                raise KeyError("undo")
        except (KeyError, TransactionRolledBack):
            pass
    expect_all(await take(site, queue, 1), ["there"])


async def anonymous_terminus(site: Site, queue: str) -> None:
    """A sender without an address: each message says where it goes."""
    async with (
        await connected(site) as connection,
        await connection.sender(None, timeout=PATIENCE) as sender,
    ):
        await sender.send(Message("a", to=queue))
    expect_all(await take(site, queue, 1), ["a"])


async def drain(site: Site, queue: str) -> None:
    """A drain ends when there is nothing more, and what was there has come."""
    async with await connected(site) as connection:
        await fill(connection, queue, texts(3))
        async with await connection.receiver(queue, credit="manual") as receiver:
            receiver.add_credit(10)
            await receiver.drain(timeout=PATIENCE)
            expect(receiver.queued, 3, "queued")
            expect(receiver.credit, 0, "credit")


# ── Refusals ─────────────────────────────────────────────────────────────────────────────────────


async def _harmless(site: Site, queue: str, refused: Any, user: str = "alice") -> None:
    """Have something refused, and see that a sender and a receiver that were there still work."""
    async with await connected(site, user) as connection:
        sender = await connection.sender(queue)
        receiver = await connection.receiver(queue)
        for body in ("before", "after"):
            await asyncio.wait_for(sender.send(body), PATIENCE)
            expect(await some(receiver, 1), [body], "bodies")
            if body == "before":
                await fails(refused(connection), ferrymq.AmqpError)


async def refused_sender(site: Site, queue: str) -> None:
    """A sender to what does not exist is refused, and harms no other link."""
    await _harmless(site, queue, lambda c: c.sender(site.missing(), timeout=PATIENCE))


async def refused_receiver(site: Site, queue: str) -> None:
    """A receiver from what does not exist is refused, and harms no other link."""
    await _harmless(site, queue, lambda c: c.receiver(site.missing(), timeout=PATIENCE))


async def refused_by_rights(site: Site, queue: str) -> None:
    """A receiver without the right is refused, and harms no other link."""
    assert site.users, "the broker knows no users"
    open_queue = site.queue(OPEN_QUEUE)
    await _harmless(site, open_queue, lambda c: c.receiver(queue, timeout=PATIENCE), "bob")


async def refused_user_id(site: Site, queue: str) -> None:
    """A message in the name of somebody else is refused, and harms no other link."""
    assert site.users, "the broker knows no users"

    async def pretend(connection: Connection) -> None:
        async with await connection.sender(queue) as sender:
            await sender.send(Message("x", user_id=b"somebody"), timeout=PATIENCE)

    await _harmless(site, queue, pretend)


async def refused_dynamic(site: Site, queue: str) -> None:
    """Where dynamic queues are refused, no other link is harmed."""

    async def ask(connection: Connection) -> None:
        async with await connection.receiver(None, dynamic=True, timeout=PATIENCE):
            pass
        # Where the broker makes one, there is nothing to see.
        raise ferrymq.AmqpError("amqp:not-implemented", "made")

    await _harmless(site, queue, ask)


# ── Losses ───────────────────────────────────────────────────────────────────────────────────────


async def durable_links(site: Site, queue: str) -> None:
    """A durable sender and receiver work, detach, and find each other's messages again."""
    bodies = []
    for number in range(2):
        async with await connected(site, container_id="durable-links") as connection:
            sender = await connection.sender(queue, name="out", durable=True, timeout=PATIENCE)
            await sender.send(Message(f"{number}", durable=True), timeout=PATIENCE)
            await sender.detach()
            receiver = await connection.receiver(queue, name="in", durable=True, timeout=PATIENCE)
            bodies += await some(receiver, 1)
            await receiver.detach()
    expect_all(bodies, ["0", "1"])


async def killed(site: Site, queue: str) -> str:
    """The broker is killed under load and comes back: nothing is lost, duplicates are counted."""
    assert site.stores, "the broker stores nothing"
    policy = ReconnectPolicy(initial=0.05, maximum=0.5)
    async with await ferrymq.connect(site.url(), timeout=60, reconnect=policy) as connection:
        sender = await connection.sender(queue, timeout=60)
        receiver = await connection.receiver(queue, timeout=60)
        seen: Counter[int] = Counter()
        count = 3000
        halfway = asyncio.Event()
        done = asyncio.Event()

        async def sending() -> None:
            for start in range(0, count, 50):
                batch = range(start, start + 50)
                await sender.send_many([Message(number, durable=True) for number in batch])
                if start >= count // 3:
                    halfway.set()

        async def receiving() -> None:
            while len(seen) < count:
                delivery = await receiver.receive()
                try:
                    await delivery.accept()
                except ferrymq.AmqpError:
                    continue
                finally:
                    seen[delivery.message.body] += 1
            done.set()

        tasks = [asyncio.ensure_future(sending()), asyncio.ensure_future(receiving())]
        try:
            await asyncio.wait(
                [asyncio.ensure_future(halfway.wait()), *tasks], return_when="FIRST_COMPLETED"
            )
            await asyncio.to_thread(site.kill)
            await asyncio.to_thread(site.start)
            await asyncio.wait_for(asyncio.gather(*tasks), 30)
        except TimeoutError:
            raise AssertionError(f"{count - len(seen)} of {count} messages are gone") from None
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    doubled = sum(seen.values()) - len(seen)
    assert doubled <= count // 2, f"{doubled} of {count} messages came twice"
    return f"0 of {count} messages lost, {doubled} came twice"


async def refused_with_reconnect(site: Site, queue: str) -> None:
    """With a reconnect policy too, a refused link fails and the others go on."""
    async with await connected(site, reconnect=True) as connection:
        sender = await connection.sender(queue)
        await sender.send("before")
        await fails(connection.sender(site.missing(), timeout=PATIENCE), ferrymq.AmqpError)
        await asyncio.wait_for(sender.send("after"), PATIENCE)
    expect_all(await take(site, queue, 2), ["before", "after"])


# ── Workers, what only some have ─────────────────────────────────────────────────────────────────


async def worker(site: Site, queue: str) -> None:
    """A worker handles all messages; one whose handler fails comes to it again."""
    seen: list[str] = []
    failed: list[str] = []

    async def handle(delivery: Delivery) -> None:
        body = delivery.message.body
        if body == "message 1" and not failed:
            failed.append(body)
            raise ValueError(body)
        seen.append(body)
        if len(seen) == 5:
            everything.set()

    everything = asyncio.Event()
    async with await connected(site) as connection:
        await fill(connection, queue, texts(5))
        working = Worker(connection, queue, handle, retry_delay=0.05)
        running = asyncio.ensure_future(working.run())
        try:
            await asyncio.wait_for(everything.wait(), PATIENCE)
        except TimeoutError:
            raise AssertionError(f"handled only {sorted(seen)}") from None
        finally:
            working.stop()
            await running
    expect_all(sorted(seen), texts(5))


async def unroutable(site: Site, queue: str) -> None:
    """A message that no binding takes is released, so that the sender knows."""
    exchange = site.exchange("amq.topic", "nobody")
    async with await connected(site) as connection, await connection.sender(exchange) as sender:
        await fails(sender.send("x", timeout=PATIENCE), DeliveryReleased)


async def percent_encoded(site: Site, queue: str) -> None:
    """A queue whose name has a blank, a slash and a percent sign."""
    address = site.queue("a queue/with %")
    async with await connected(site) as connection:
        await fill(connection, address, ["a"])
    expect_all(await take(site, address, 1), ["a"])


async def virtual_host(site: Site, queue: str) -> None:
    """A queue of another virtual host, named by `hostname`."""
    async with await connected(site, hostname=site.other_host) as connection:
        address = site.queue("elsewhere")
        await fill(connection, address, ["a"])
        async with await connection.receiver(address) as receiver:
            expect(await some(receiver, 1), ["a"], "bodies")


async def management_node(site: Site, queue: str) -> None:
    """The node ``$management``, which ferrymq has."""
    async with await connected(site) as connection:
        await connection.management()


async def management(site: Site, queue: str) -> None:
    """Queues, exchanges and bindings, declared, used and deleted."""
    async with await connected(site) as connection, rabbitmq.management(connection) as manager:
        await manager.declare_queue("made here", type="quorum")
        await manager.declare_exchange("sales", type="topic")
        await manager.bind("sales", queue="made here", key="eu.#")
        sender = await connection.sender(rabbitmq.exchange_address("sales", "eu.fr"))
        for number in range(3):
            await sender.send(str(number))
        receiver = await connection.receiver(rabbitmq.queue_address("made here"))
        async with await receiver.receive(timeout=PATIENCE) as delivery:
            expect(delivery.message.body, "0", "the message")
        await receiver.close()
        expect(await manager.purge_queue("made here"), 2, "messages purged")
        expect((await manager.get_queue("made here")).type, "quorum", "type")
        await manager.delete_exchange("sales")
        await manager.delete_queue("made here")
        try:
            await manager.get_queue("made here")
        except rabbitmq.NotFound:
            return
        raise AssertionError("the queue is there after it was deleted")
