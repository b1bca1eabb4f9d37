"""The HTTP listener: liveness, readiness, metrics, against a real listener and a real client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from ferrymq.engine.sasl import Plain
from ferrymq_broker.monitoring.http import MonitoringServer
from ferrymq_broker.monitoring.readiness import Readiness
from ferrymq_broker.values.policy import QueuePolicy
from ferrymq_types.messaging import Accepted
from tests.broker.harness import Network


@dataclass
class Watch:
    """A broker with a listener, and what is said about its readiness."""

    net: Network = field(default_factory=Network)
    server: MonitoringServer = field(init=False)
    readiness: Readiness = field(default_factory=lambda: Readiness(True, ""))

    async def get(self, path: str, **headers: str) -> tuple[int, str, aiohttp.ClientResponse]:
        async with (
            aiohttp.ClientSession() as session,
            session.get(self.server.url + path, headers=headers) as response,
        ):
            return response.status, await response.text(), response

    async def samples(self, path: str = "/metrics") -> dict[str, dict[tuple[str, ...], float]]:
        """Every sample by its name and the values of its labels in order of their names."""
        status, text, _ = await self.get(path)
        assert status == 200
        found: dict[str, dict[tuple[str, ...], float]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                labels = tuple(value for _, value in sorted(sample.labels.items()))
                found.setdefault(sample.name, {})[labels] = sample.value
        return found


@pytest.fixture
async def watch() -> AsyncIterator[Watch]:
    made = Watch()
    made.server = MonitoringServer(made.net.broker, "http://127.0.0.1:0", lambda: made.readiness)
    made.server.watch()
    await made.server.start()
    yield made
    await made.server.close()


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/metrics", "/nothing"])
async def test_no_answer_says_which_software_it_is(watch: Watch, path: str) -> None:
    _, _, response = await watch.get(path)
    assert "Server" not in response.headers
    assert response.headers["X-Content-Type-Options"] == "nosniff"


async def test_a_broker_that_answers_lives(watch: Watch) -> None:
    watch.readiness = Readiness(False, "starting")
    status, text, _ = await watch.get("/livez")
    assert (status, text) == (200, '{"live": true}')


async def test_ready_and_not(watch: Watch) -> None:
    status, text, _ = await watch.get("/readyz")
    assert status == 200 and '"ready": true' in text
    watch.readiness = Readiness(False, "the broker is shutting down")
    status, text, _ = await watch.get("/readyz")
    assert status == 503 and "shutting down" in text


async def test_there_are_no_figures_before_there_is_something_to_count() -> None:
    starting = Watch()
    readiness = Readiness(False, "recovering, 43 %")
    starting.server = MonitoringServer(starting.net.broker, "http://127.0.0.1:0", lambda: readiness)
    await starting.server.start()
    assert (await starting.get("/livez"))[0] == 200
    for path in ("/readyz", "/metrics", "/metrics/nodes"):
        status, text, _ = await starting.get(path)
        assert status == 503 and "recovering, 43 %" in text
    starting.server.watch()
    assert "ferrymq_connections" in await starting.samples()
    await starting.server.close()


async def test_an_alarm_is_told_and_does_not_end_readiness(watch: Watch) -> None:
    watch.net.broker.set_alarm("memory", True)
    status, text, _ = await watch.get("/readyz")
    assert status == 200 and '"alarms": ["memory"]' in text
    assert (await watch.samples())["ferrymq_alarm"] == {("memory",): 1}


async def test_figures_follow_the_traffic(watch: Watch) -> None:
    client = watch.net.connect()
    sender = client.sender("orders")
    sender.send(b"one", b"two", b"three")
    receiver = client.receiver("orders", credit=2)
    receiver.settle(Accepted(), receiver.deliveries[0])
    samples = await watch.samples()
    assert samples["ferrymq_messages_published_total"]["queue", "default"] == 3
    assert samples["ferrymq_messages_accepted_total"]["queue", "default"] == 1
    assert samples["ferrymq_node_available"]["queue", "default"] == 1
    assert samples["ferrymq_node_acquired"]["queue", "default"] == 1
    assert samples["ferrymq_node_consumers"]["queue", "default"] == 1
    assert samples["ferrymq_connections"] == {(): 1}
    assert samples["ferrymq_links"] == {(): 2}
    assert samples["ferrymq_held_bytes"][()] > 0
    client.close()
    assert (await watch.samples())["ferrymq_connections"] == {(): 0}


async def test_what_nobody_was_told_of_is_counted(watch: Watch) -> None:
    watch.net.declare("full", QueuePolicy(max_length=1))
    client = watch.net.connect()
    client.sender("full").send(b"one", b"two", b"three", settled=True)
    samples = await watch.samples()
    assert samples["ferrymq_settled_messages_dropped_total"] == {(): 2}
    assert samples["ferrymq_messages_refused_total"]["queue", "default"] == 2


async def test_every_node_by_its_address(watch: Watch) -> None:
    watch.net.declare("a")
    watch.net.declare("b", QueuePolicy(max_length=5))
    watch.net.connect().sender("b").send(b"x")
    samples = await watch.samples("/metrics/nodes")
    published = samples["ferrymq_messages_published_total"]
    assert published == {("a", "queue", "default"): 0, ("b", "queue", "default"): 1}
    assert "ferrymq_connections" not in samples


async def test_sums_never_fall_when_a_node_goes(watch: Watch) -> None:
    watch.net.connect().sender("gone").send(b"x", b"y")
    watch.net.connect().sender("stays").send(b"z")
    watch.net.space.remove(watch.net.queue("gone"))
    samples = await watch.samples()
    assert samples["ferrymq_messages_published_total"]["queue", "default"] == 3
    assert samples["ferrymq_nodes"]["queue", "default"] == 1


async def test_the_process_is_watched_too(watch: Watch) -> None:
    samples = await watch.samples()
    assert samples["process_resident_memory_bytes"][()] > 1_000_000


async def test_scrapers_get_the_format_they_ask_for(watch: Watch) -> None:
    _, text, response = await watch.get(
        "/metrics", Accept="application/openmetrics-text; version=1.0.0"
    )
    assert response.headers["Content-Type"].startswith("application/openmetrics-text")
    assert text.endswith("# EOF\n")
    _, _, response = await watch.get("/metrics")
    assert response.headers["Content-Type"].startswith("text/plain")


async def test_nothing_else_is_served(watch: Watch) -> None:
    status, _, _ = await watch.get("/queues")
    assert status == 404


async def test_an_address_that_is_taken(watch: Watch) -> None:
    other = MonitoringServer(watch.net.broker, watch.server.url, lambda: watch.readiness)
    with pytest.raises(OSError):
        await other.start()
    await other.close()


async def test_connections_tell_what_they_hold_and_who_is_throttled(watch: Watch) -> None:
    net = watch.net
    net.declare("q")
    net.broker.rate_limits.user_messages = 2
    ann = net.connect(sasl=Plain("ann", "any password"), container_id='a "shop"')
    sender = ann.sender("q")
    sender.send(b"a", b"b")
    net.connect(container_id="worker").receiver("q", credit=5)
    samples = await watch.samples()
    assert samples["ferrymq_unsettled_deliveries"] == {(): 2.0}
    assert samples["ferrymq_throttled_connections"] == {("ann",): 1.0}
    assert samples["ferrymq_throttles_total"] == {(): 1.0}
    found = await watch.samples("/metrics/connections")
    shop, worker = found["ferrymq_connection_unsettled"]
    assert {'a "shop"', "ann", "AMQP 1.0", "default", "test"} <= set(shop)
    assert found["ferrymq_connection_unsettled"] == {shop: 0.0, worker: 2.0}
    assert found["ferrymq_connection_throttled"] == {shop: 1.0, worker: 0.0}
    assert found["ferrymq_connection_messages_received_total"] == {shop: 2.0, worker: 0.0}
    assert found["ferrymq_connection_messages_sent_total"] == {shop: 0.0, worker: 2.0}
    net.advance(1)
    net.broker.begin_pass(net.now)
    found = await watch.samples("/metrics/connections")
    assert found["ferrymq_connection_throttled_seconds_total"][shop] > 0
