"""Requests of the management API: each stands for a request to the management node."""

from __future__ import annotations

from urllib.parse import quote

import ferrymq
from ferrymq import Message
from tests.broker.http_api.conftest import serving


async def test_an_entity_is_made_read_changed_and_deleted() -> None:
    async with serving() as api:
        fields, made = await api.whole("PUT", "queue/a%2Fb%20c", {"max-length": 3}, 201)
        assert made["name"] == "a/b c" and made["max-length"] == 3
        assert fields["Location"] == "/management/v1/queue/a%2Fb%20c"
        again, _ = await api.whole("PUT", "queue/a%2Fb%20c", {"max-length": 3})
        assert again["Status-Description"] == "exists already"
        problem = await api.ask("PUT", "queue/a%2Fb%20c", {"max-length": 4}, 409)
        assert problem["title"] == "Conflict" and "max-length" in problem["detail"]
        await api.ask("PATCH", "queue/a%2Fb%20c", {"max-length": 5})
        assert (await api.ask("GET", "queue/a%2Fb%20c"))["max-length"] == 5
        await api.ask("DELETE", "queue/a%2Fb%20c?if-empty=true", status=204)
        await api.ask("GET", "queue/a%2Fb%20c", status=404)


async def test_an_entity_whose_name_the_broker_makes() -> None:
    async with serving(exchange=[{"name": "all", "routing": "topic"}]) as api:
        body = {"exchange": "all", "destination": "orders", "key": "a.#"}
        fields, made = await api.whole("POST", "binding", body, 201)
        assert made["name"] == "all/a.#/orders"
        await api.ask("DELETE", fields["Location"].removeprefix("/management/v1/"), status=204)
        assert (await api.ask("GET", "binding"))["total"] == 0


async def test_a_list_comes_in_pages_with_the_wanted_attributes() -> None:
    queues = [{"name": f"q{number:03}"} for number in range(150)]
    async with serving(queue=queues) as api:
        first = await api.ask("GET", "queue")
        assert first["total"] == 150 and len(first["items"]) == 100
        rest = await api.ask("GET", "queue?offset=100&attributes=available,max-length")
        assert [each["name"] for each in rest["items"]] == [f"q{n:03}" for n in range(100, 150)]
        assert set(rest["items"][0]) == {"name", "identity", "type", "available", "max-length"}


async def test_messages_come_with_their_sections() -> None:
    async with serving() as api:
        message = Message(body=b"\xff\x00", subject="new", application_properties={"n": 1})
        async with (
            ferrymq.connect(f"amqp://127.0.0.1:{api.server.port}") as connection,
            connection.sender("orders") as sender,
        ):
            await sender.send(message)
        (found,) = (await api.ask("POST", "queue/orders/peek", {"count": 5}))["messages"]
        sections = {each["section"]: each["value"] for each in found["message"]}
        assert sections == {
            "properties": {"subject": "new"},
            "application-properties": {"n": 1},
            "data": {"base64": "/wA="},
        }
        assert found["sequence"] == 1 and found["state"] == "available"
        assert await api.ask("POST", "queue/orders/purge", {}) == {"count": 1}


async def test_another_virtual_host_is_named_in_the_query_or_is_the_host() -> None:
    async with serving() as api:
        await api.ask("PUT", "queue/mine?virtual-host=shop", {}, 201)
        assert (await api.ask("GET", "queue?virtual-host=shop"))["total"] == 1
        of_host = await api.ask("GET", "queue", headers={"Host": "shop.example"})
        assert [each["name"] for each in of_host["items"]] == ["mine"]
        assert (await api.ask("GET", "whoami"))["virtual-hosts"] == ["default", "shop"]
        await api.ask("GET", "queue?virtual-host=none", status=404)


async def test_a_link_is_found_by_its_identity() -> None:
    async with (
        serving() as api,
        ferrymq.connect(f"amqp://127.0.0.1:{api.server.port}") as connection,
        connection.receiver("orders", name="a/b"),
    ):
        (link,) = (await api.ask("GET", "link"))["items"]
        same = await api.ask("GET", f"link/{quote(link['identity'], '')}")
        assert same["name"] == "a/b" and same["address"] == "orders"


async def test_malformed_requests() -> None:
    async with serving() as api:
        for method, path, body, status in (
            ("GET", "unicorn", None, 404),
            ("GET", "queue/orders/peek", None, 405),
            ("GET", "queue/a/b/c", None, 404),
            ("PATCH", "queue", {}, 405),
            ("POST", "queue/orders/dance", {}, 501),
            ("PUT", "queue/new", None, 415),
            ("PUT", "queue/new", {"max-length": "many"}, 400),
            ("POST", "queue/orders/peek", {"count": 100_000}, 400),
            ("POST", "queue/orders/peek", {"cuont": 1}, 400),
        ):
            problem = await api.ask(method, path, body, status)
            assert problem["status"] == status and problem["detail"], path
        json = {"Content-Type": "application/json"}
        for text in (b"{", b"[]", b"[" * 40_000, b'{"state": {"base64": "?"}}'):
            await api.ask("POST", "queue/orders/peek", text, 400, json)
        await api.ask("POST", "queue/orders/peek", b" " * 60_000, 413, json)
        # Nothing of it has made anything.
        assert (await api.ask("GET", "queue"))["total"] == 1


async def test_the_same_on_a_listener_for_all_protocols() -> None:
    async with serving() as api:
        api.url = f"http://127.0.0.1:{api.server.port}"
        assert (await api.ask("GET", "queue/orders"))["max-length"] == 100


async def test_without_management() -> None:
    http = {"url": "http://127.0.0.1:0", "management": False}
    async with serving(http=http) as api:
        await api.ask("GET", "queue", status=404)
        api.url = f"http://127.0.0.1:{api.server.port}"
        await api.ask("GET", "queue", status=404)
