"""Cases for Azure's SDK for Event Hubs in Python: a coroutine for each feature.

The names are those of the features in `cases`. They are written for the asyncio classes;
`python_client` runs them with the blocking classes, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from azure.eventhub import EventData, TransportType
from azure.eventhub import aio as _asyncio_clients  # noqa: F401
from azure.eventhub.exceptions import EventHubError

from tests.interop.azure.python_client import Trial
from tests.interop.features.trial import expect

GROUP = "$Default"

OnEvent = Callable[[Any, Any], Awaitable[None]]


def producer(at: Trial, **options: Any) -> Any:
    """Return a producer that does not try again."""
    options.setdefault("eventhub_name", at.entity)
    options.setdefault("transport_type", TransportType.Amqp)
    return at.client("azure.eventhub", "EventHubProducerClient", retry_total=0, **options)


def consumer(at: Trial, group: str = GROUP, **options: Any) -> Any:
    """Return a consumer that does not try again."""
    return at.client(
        "azure.eventhub",
        "EventHubConsumerClient",
        consumer_group=group,
        eventhub_name=options.pop("eventhub_name", at.entity),
        retry_total=0,
        load_balancing_interval=1,
        transport_type=options.pop("transport_type", TransportType.Amqp),
        **options,
    )


async def put(at: Trial, partition: str, *bodies: str, **options: Any) -> None:
    """Send events to a partition."""
    async with producer(at, **options) as client:
        batch = await client.create_batch(partition_id=partition)
        for body in bodies:
            batch.add(EventData(body))
        await client.send_batch(batch)


@asynccontextmanager
async def reading(client: Any, on_event: OnEvent, **options: Any) -> AsyncIterator[None]:
    """Read in the background until the block ends; an error of the reader ends the block."""
    task = asyncio.create_task(client.receive(on_event=on_event, **options))
    try:
        yield
    finally:
        await client.close()
        await asyncio.gather(task, return_exceptions=True)


async def take(client: Any, count: int, **options: Any) -> list[Any]:
    """Return so many events, with their partitions, as pairs."""
    found: list[Any] = []
    enough = asyncio.Event()

    async def on_event(context: Any, event: Any) -> None:
        found.append((context, event))
        if len(found) == count:
            enough.set()

    async with reading(client, on_event, **options):
        await enough.wait()
    return found


def bodies_of(found: list[Any]) -> list[str]:
    """Return the bodies of what `take` returns."""
    return [event.body_as_str() for _, event in found]


# ── Sending ──────────────────────────────────────────────────────────────────────────────────────


async def event(at: Trial) -> None:
    async with producer(at) as client:
        await client.send_event(EventData("one"))
    found = await take(consumer(at), 1, starting_position="-1")
    expect(bodies_of(found), ["one"])


async def event_batch(at: Trial) -> None:
    async with producer(at) as client:
        batch = await client.create_batch()
        for body in "abc":
            batch.add(EventData(body))
        await client.send_batch(batch)
        small = await client.create_batch(max_size_in_bytes=300)
        try:
            small.add(EventData("x" * 300))
        except ValueError:
            pass
        else:
            raise AssertionError("the batch has taken too much")
        await client.send_batch([EventData("d"), EventData("e")])
    found = await take(consumer(at), 5, starting_position="-1")
    expect(sorted(bodies_of(found)), list("abcde"))


async def event_properties(at: Trial) -> None:
    given = EventData("one")
    given.properties = {"text": "t", "n": 1, "flag": True}
    given.content_type = "text/plain"
    given.correlation_id = "other"
    given.message_id = "id"
    async with producer(at) as client:
        await client.send_event(given)
    ((_, one),) = await take(consumer(at), 1, starting_position="-1")
    found = {
        key.decode(): value.decode() if isinstance(value, bytes) else value
        for key, value in one.properties.items()
    }
    expect(found, given.properties)
    told = (one.content_type, one.correlation_id, one.message_id)
    expect(told, ("text/plain", "other", "id"))
    assert one.enqueued_time is not None and one.offset is not None


async def partition_id(at: Trial) -> None:
    await put(at, "0", "a", "b")
    await put(at, "1", "c")
    found = await take(consumer(at), 3, starting_position="-1")
    pairs = {(context.partition_id, one.body_as_str()) for context, one in found}
    expect(pairs, {("0", "a"), ("0", "b"), ("1", "c")})


async def event_partition_key(at: Trial) -> None:
    async with producer(at) as client:
        for body in "abc":
            batch = await client.create_batch(partition_key="k")
            batch.add(EventData(body))
            await client.send_batch(batch)
    found = await take(consumer(at), 3, starting_position="-1")
    expect(len({context.partition_id for context, _ in found}), 1)
    expect([one.partition_key for _, one in found], [b"k"] * 3)
    expect(bodies_of(found), list("abc"))


async def buffered(at: Trial) -> None:
    sent: list[str] = []
    done = asyncio.Event()

    async def on_success(events: Any, partition: Any) -> None:
        sent.extend(each.body_as_str() for each in events)
        if len(sent) == 20:
            done.set()

    async def on_error(events: Any, partition: Any, error: Exception) -> None:
        raise error

    loop = asyncio.get_running_loop()
    options: dict[str, Any] = {"on_success": on_success, "on_error": on_error}
    if at.flavour == "sync":
        options = {
            "on_success": lambda *args: asyncio.run_coroutine_threadsafe(on_success(*args), loop),
            "on_error": lambda *args: None,
        }
    async with producer(at, buffered_mode=True, max_wait_time=1, **options) as client:
        for number in range(20):
            await client.send_event(EventData(f"{number:02}"))
        await client.flush()
        await done.wait()
    found = await take(consumer(at), 20, starting_position="-1")
    expect(sorted(bodies_of(found)), [f"{number:02}" for number in range(20)])


# ── Properties ───────────────────────────────────────────────────────────────────────────────────


async def hub_properties(at: Trial) -> None:
    async with producer(at) as client:
        found = await client.get_eventhub_properties()
        expect((found["eventhub_name"], found["partition_ids"]), (at.entity, ["0", "1"]))
        assert found["created_at"]
        expect(await client.get_partition_ids(), ["0", "1"])
    async with consumer(at) as client:
        expect(await client.get_partition_ids(), ["0", "1"])


async def partition_properties(at: Trial) -> None:
    async with producer(at) as client:
        expect((await client.get_partition_properties("0"))["is_empty"], True)
    await put(at, "0", "a", "b")
    async with producer(at) as client:
        found = await client.get_partition_properties("0")
        expect((found["eventhub_name"], found["id"]), (at.entity, "0"))
        expect(found["last_enqueued_sequence_number"] - found["beginning_sequence_number"], 1)
        assert isinstance(found["last_enqueued_offset"], str)
        assert found["last_enqueued_time_utc"] and not found["is_empty"]


# ── Positions ────────────────────────────────────────────────────────────────────────────────────


async def from_start(at: Trial) -> None:
    await put(at, "0", *"abc")
    found = await take(consumer(at), 3, partition_id="0", starting_position="-1")
    expect(bodies_of(found), list("abc"))


async def from_latest(at: Trial) -> None:
    await put(at, "0", "old")
    ready = asyncio.Event()
    found: list[str] = []
    came = asyncio.Event()

    async def on_event(context: Any, one: Any) -> None:
        # Without an event the receiver has waited, so it is attached.
        if one is None:
            ready.set()
        else:
            found.append(one.body_as_str())
            came.set()

    options = {"partition_id": "0", "starting_position": "@latest", "max_wait_time": 1}
    async with reading(consumer(at), on_event, **options):
        await ready.wait()
        await put(at, "0", "new")
        await came.wait()
    expect(found, ["new"])


async def _from(at: Trial, position: Callable[[Any], Any], wanted: str, **options: Any) -> None:
    """Expect the events behind a position that is taken from the second of four events."""
    await put(at, "0", "a", "b")
    await at.advance(10)
    await put(at, "0", "c", "d")
    found = await take(consumer(at), 4, partition_id="0", starting_position="-1")
    start = position(found[1][1])
    again = await take(
        consumer(at), len(wanted), partition_id="0", starting_position=start, **options
    )
    expect(bodies_of(again), list(wanted))


async def from_offset(at: Trial) -> None:
    await _from(at, lambda one: one.offset, "cd")


async def from_sequence_number(at: Trial) -> None:
    await _from(at, lambda one: one.sequence_number, "cd")
    found = await take(
        consumer(at),
        3,
        partition_id="0",
        starting_position=1,
        starting_position_inclusive=True,
    )
    expect(bodies_of(found), list("bcd"))


async def from_time(at: Trial) -> None:
    await _from(at, lambda one: one.enqueued_time, "cd")


# ── Consumers ────────────────────────────────────────────────────────────────────────────────────


async def epoch(at: Trial) -> None:
    await put(at, "0", "a")
    first_has = asyncio.Event()
    first_lost = asyncio.Event()
    second_has = asyncio.Event()
    errors: list[str] = []

    async def on_first(context: Any, one: Any) -> None:
        first_has.set()

    async def on_error(context: Any, error: Exception) -> None:
        errors.append(str(error))
        first_lost.set()

    async def on_second(context: Any, one: Any) -> None:
        second_has.set()

    options = {"partition_id": "0", "starting_position": "-1"}
    first = reading(consumer(at), on_first, owner_level=1, on_error=on_error, **options)
    async with first:
        await first_has.wait()
        async with reading(consumer(at), on_second, owner_level=2, **options):
            await second_has.wait()
            await first_lost.wait()
    assert "stolen" in errors[0].lower() or "epoch" in errors[0].lower(), errors[0]


async def consumer_groups(at: Trial) -> None:
    await put(at, "0", "a", "b")
    for group in (GROUP, "other"):
        found = await take(consumer(at, group), 2, starting_position="-1")
        expect(bodies_of(found), ["a", "b"])


async def metrics(at: Trial) -> None:
    await put(at, "0", "a", "b", "c")
    told: list[Any] = []
    enough = asyncio.Event()

    async def on_event(context: Any, one: Any) -> None:
        told.append(context.last_enqueued_event_properties)
        enough.set()

    async with reading(
        consumer(at),
        on_event,
        partition_id="0",
        starting_position="-1",
        track_last_enqueued_event_properties=True,
    ):
        await enough.wait()
    assert told[0], "nothing was told"
    expect(told[0]["sequence_number"], 2)
    assert told[0]["offset"] is not None and told[0]["enqueued_time"] is not None


def _store(at: Trial) -> Any:
    """Return a store of checkpoints and of the ownership of partitions, in memory."""
    from azure.eventhub._eventprocessor.in_memory_checkpoint_store import InMemoryCheckpointStore

    inner = InMemoryCheckpointStore()
    if at.flavour == "sync":
        return inner
    from azure.eventhub.aio import CheckpointStore

    class Store(CheckpointStore):  # type: ignore[misc]
        """The store with coroutines."""

        async def list_ownership(self, *args: Any, **more: Any) -> Any:
            return inner.list_ownership(*args, **more)

        async def claim_ownership(self, *args: Any, **more: Any) -> Any:
            return inner.claim_ownership(*args, **more)

        async def update_checkpoint(self, *args: Any, **more: Any) -> None:
            inner.update_checkpoint(*args, **more)

        async def list_checkpoints(self, *args: Any, **more: Any) -> Any:
            return inner.list_checkpoints(*args, **more)

    return Store()


async def checkpoint(at: Trial) -> None:
    store = _store(at)
    await put(at, "0", "a", "b")
    seen: list[str] = []
    enough = asyncio.Event()

    async def on_event(context: Any, one: Any) -> None:
        seen.append(one.body_as_str())
        await context.update_checkpoint(one)
        if len(seen) == 2:
            enough.set()

    async with reading(consumer(at, checkpoint_store=store), on_event, starting_position="-1"):
        await enough.wait()
    await put(at, "0", "c")
    found = await take(consumer(at, checkpoint_store=store), 1, starting_position="-1")
    expect(bodies_of(found), ["c"])


async def balance(at: Trial) -> None:
    store = _store(at)
    owners: dict[str, set[str]] = {"one": set(), "two": set()}
    shared = asyncio.Event()

    def reader(name: str) -> OnEvent:
        async def on_event(context: Any, one: Any) -> None:
            for each, partitions in owners.items():
                if each == name:
                    partitions.add(context.partition_id)
                else:
                    partitions.discard(context.partition_id)
            if all(len(partitions) == 1 for partitions in owners.values()):
                shared.set()

        return on_event

    made = [consumer(at, checkpoint_store=store) for _ in owners]
    options = {"starting_position": "-1", "max_wait_time": 1}
    async with (
        reading(made[0], reader("one"), **options),
        reading(made[1], reader("two"), **options),
    ):
        await shared.wait()


# ── Errors and connections ───────────────────────────────────────────────────────────────────────


async def hub_not_found(at: Trial) -> None:
    async with producer(at, eventhub_name="missing") as client:
        try:
            await client.send_event(EventData("one"))
        except EventHubError as error:
            told = str(error)
            assert "404" in told or "not-found" in told, told
        else:
            raise AssertionError("it was not refused")


async def hub_tls(at: Trial) -> None:
    await put(at, "0", "a", "b")
    found = await take(consumer(at), 2, starting_position="-1")
    expect(bodies_of(found), ["a", "b"])


async def hub_websocket(at: Trial) -> None:
    over = {"transport_type": TransportType.AmqpOverWebsocket}
    await put(at, "0", "a", "b", **over)
    found = await take(consumer(at, **over), 2, starting_position="-1")
    expect(bodies_of(found), ["a", "b"])


async def flow_hub(at: Trial) -> None:
    devices = ("door", "lamp", "oven")
    async with producer(at) as client:
        for number in range(5):
            for device in devices:
                batch = await client.create_batch(partition_key=device)
                one = EventData(f"{device} {number}")
                one.properties = {"number": number}
                batch.add(one)
                await client.send_batch(batch)
    found = bodies_of(await take(consumer(at), 15, starting_position="-1"))
    for device in devices:
        mine = [body for body in found if body.startswith(device)]
        expect(mine, [f"{device} {number}" for number in range(5)])
