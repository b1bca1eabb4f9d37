"""Claims-based security: tokens that are put at ``$cbs``, and what they give."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from uuid import uuid4

import pytest

from ferrymq_broker.security.jwks import KeyUrl
from ferrymq_codec.scalars import Timestamp
from ferrymq_types.messaging import AmqpValue, ApplicationProperties, Data, Properties, Rejected
from tests.broker.harness import Network
from tests.broker.management.asker import read_answer
from tests.broker.tokens.bearers import JWT, KEY, SAS, UNAUTHORIZED, Bearer, shop, taking
from tests.broker.tokens.makers import (
    AUDIENCE,
    ISSUER,
    NOW,
    ec_key,
    jwks,
    make_jwt,
    make_sas,
)

Q1 = make_sas("sb://localhost/q1", KEY)
ALL = make_sas("sb://localhost/", KEY)


@pytest.fixture
def net() -> Network:
    return shop()


@pytest.fixture
def bearer(net: Network) -> Bearer:
    return Bearer(net)


def test_nothing_without_a_token(bearer: Bearer) -> None:
    for address in ("q1", "q2", "nothing"):
        assert not bearer.may_send(address)
        assert bearer.client.receiver(address).detached


def test_a_token_gives_what_its_key_may(bearer: Bearer) -> None:
    assert bearer.put(Q1) == 202
    assert bearer.may_send("q1")
    assert bearer.client.receiver("q1").attached
    # Neither browsing nor anything elsewhere.
    assert bearer.client.receiver("q1", mode="copy").detached
    for address in ("q10", "q", "Q1", "q2", "q1.x"):
        assert not bearer.may_send(address)


def test_a_token_for_all(bearer: Bearer) -> None:
    assert bearer.put(ALL, "sb://localhost/") == 202
    assert bearer.may_send("q1") and bearer.may_send("q2")


def test_a_token_for_all_that_is_put_for_one(bearer: Bearer) -> None:
    assert bearer.put(ALL, "sb://localhost/q1") == 202
    assert bearer.may_send("q1") and not bearer.may_send("q2")


def test_tokens_are_those_of_one_connection(net: Network, bearer: Bearer) -> None:
    assert bearer.put(Q1) == 202
    other = Bearer(net)
    assert not other.may_send("q1")
    bearer.client.close()
    assert not Bearer(net).may_send("q1")


@pytest.mark.parametrize("kind", [SAS, JWT, "amqp:jwt"])
@pytest.mark.parametrize("name", ["sb://localhost/q1", "amqps://localhost:5671/q1", "q1", "/q1/"])
def test_what_clients_call_it(bearer: Bearer, kind: str, name: str) -> None:
    assert bearer.put(Q1, name, kind) == 202
    assert bearer.may_send("q1")


def test_tokens_as_data(bearer: Bearer) -> None:
    answer = bearer.ask(Data(Q1.encode()), operation="put-token", type=SAS, name="q1")
    assert answer.status == 202
    assert bearer.ask(AmqpValue(Q1.encode()), operation="put-token", type=SAS, name="q1").status


@pytest.mark.parametrize("id", ["text", 7, b"bytes", uuid4()])
def test_the_correlation_id_keeps_its_type(bearer: Bearer, id: object) -> None:
    asked = {"operation": "put-token", "type": SAS, "name": "q1"}
    assert bearer.ask(AmqpValue(Q1), message_id=id, **asked).status == 202  # type: ignore[arg-type]


def test_responses_go_where_the_client_wants_them(net: Network) -> None:
    client = net.connect()
    bearer = Bearer(net, client=client)
    bearer.reply_to = bearer.receiver.link.name
    assert bearer.put(Q1) == 202


# -- tokens that are not good ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "token"),
    [
        ("sb://localhost/q2", Q1),
        ("sb://localhost/q10", Q1),
        ("sb://localhost/q", Q1),
        ("sb://localhost/Q1", Q1),
        ("sb://localhost/", Q1),
        ("", Q1),
        ("q1/../q2", Q1),
        ("sb://localhost/q%31", Q1),
        ("sb://other.example/q1", Q1),
        ("sb://localhost//q1", Q1),
        ("q1", make_sas("sb://localhost/q1", "a wrong secret")),
        ("q1", make_sas("sb://localhost/q1", KEY, expires=NOW)),
        ("q1", make_sas("sb://localhost/q1/../", KEY)),
        ("q2", make_sas("sb://localhost/q1%2F..%2Fq2", KEY)),
        ("q1", "no token at all"),
        ("q1", make_jwt()),
    ],
)
def test_refused_tokens_all_get_the_same_answer(bearer: Bearer, name: str, token: str) -> None:
    answer = bearer.ask(AmqpValue(token), operation="put-token", type=JWT, name=name)
    assert (answer.status, answer.description) == (401, "the token is not valid for this name")
    for address in ("q1", "q2", "q10", "q"):
        assert not bearer.may_send(address)


def test_a_refused_token_leaves_the_one_before(bearer: Bearer) -> None:
    assert bearer.put(Q1) == 202
    assert bearer.put(make_sas("sb://localhost/q1", "a wrong secret")) == 401
    assert bearer.may_send("q1")


@pytest.mark.parametrize(
    "change",
    [
        {"operation": "delete-token"},
        {"operation": None},
        {"operation": 7},
        {"type": "amqp:swt"},
        {"type": None},
        {"type": 7},
        {"name": None},
        {"name": 7},
        {"expiration": 7},
        {"expiration": "soon"},
    ],
)
def test_requests_that_are_none(bearer: Bearer, change: dict[str, object]) -> None:
    asked = {"operation": "put-token", "type": SAS, "name": "q1", **change}
    asked = {key: value for key, value in asked.items() if value is not None}
    assert bearer.ask(AmqpValue(Q1), **asked).status == 400
    assert not bearer.may_send("q1")


@pytest.mark.parametrize(
    "body",
    [AmqpValue(7), AmqpValue(None), AmqpValue(""), AmqpValue("x" * 8193), AmqpValue([Q1]),
     AmqpValue(b"\xff"), Data(b"")],
)  # fmt: skip
def test_bodies_that_are_none(bearer: Bearer, body: AmqpValue) -> None:
    assert bearer.ask(body, operation="put-token", type=SAS, name="q1").status == 400


def test_an_expiration_of_the_client_makes_it_shorter_only(net: Network, bearer: Bearer) -> None:
    assert bearer.put(Q1, expiration=NOW) == 401
    assert bearer.put(Q1, expiration=NOW + 10) == 202
    net.advance(11)
    assert not bearer.may_send("q1")
    assert bearer.put(Q1, expiration=NOW + 100_000) == 202
    net.advance(3600)
    assert not bearer.may_send("q1")


def test_messages_that_are_sent_on_need_a_token_for_their_destination(
    net: Network, bearer: Bearer
) -> None:
    assert bearer.put(Q1) == 202
    onward = {"ferrymq:forward-to": "q2"}
    assert bearer.client.sender("q1", properties=onward).detached
    assert bearer.put(ALL, "sb://localhost/q2", expiration=NOW + 10) == 202
    sender = bearer.client.sender("q1", properties=onward)
    assert sender.attached
    sender.send(b"a")
    net.advance(11)
    (delivery,) = sender.send(b"b")
    state = delivery.remote_state
    assert isinstance(state, Rejected) and state.error is not None
    assert state.error.condition == UNAUTHORIZED
    assert net.queue("q2").message_count() == 1


def test_a_connection_has_so_many_tokens() -> None:
    table = {"name": "shop", "primary": KEY, "may": ["send"]}
    net = taking({"security": {"shared-access-key": [table], "tokens": {"limit": 2}}})
    bearer = Bearer(net)
    bearer.put_for("q1")
    bearer.put_for("q2")
    assert bearer.put(make_sas("q3", KEY), "q3") == 403
    # In place of one it has there may be another.
    bearer.put_for("q1")
    assert bearer.may_send("q1") and not bearer.may_send("q3")


def test_who_puts_too_many_waits() -> None:
    """To check a signature costs the broker more than to make one up costs a client."""
    table = {"name": "shop", "primary": KEY, "may": ["send"]}
    net = taking({"security": {"shared-access-key": [table], "tokens": {"limit": 10}}})
    bearer = Bearer(net)
    bearer.put_for("q1")
    bad = make_sas("q1", "a wrong secret")
    assert [bearer.put(bad, "q1") for _ in range(22)] == [401] * 19 + [429] * 3
    # Not even a good one, for now; what there was before counts.
    assert bearer.put(make_sas("q2", KEY), "q2") == 429
    assert bearer.may_send("q1")
    net.advance(2)
    assert bearer.put(make_sas("q2", KEY), "q2") == 202


def test_tokens_are_never_logged(
    net: Network,
    bearer: Bearer,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    signature = Q1.partition("sig=")[2].partition("&")[0]
    bearer.put(Q1)
    bearer.put(Q1, "q2")
    bearer.put(Q1 + "x")
    out, err = capsys.readouterr()
    said = caplog.text + out + err
    assert signature not in said and KEY not in said


def test_the_service_is_no_way_to_messages(bearer: Bearer) -> None:
    assert bearer.put(ALL, "") == 202
    assert bearer.client.receiver("$cbs", mode="copy").detached
    # The broker's own addresses are not among all.
    assert not bearer.may_send("$other")


def test_requests_have_no_part_in_what_can_be_taken_back(bearer: Bearer) -> None:
    assert bearer.put(make_sas("q2", KEY), "q2") == 202
    sender = bearer.client.sender(None)
    delivery = sender.send_sections(
        Properties(to="$cbs"),
        ApplicationProperties({"operation": "put-token", "type": SAS, "name": "q1"}),
        AmqpValue(Q1),
    )
    assert isinstance(delivery.remote_state, Rejected)
    assert not bearer.may_send("q1")


# -- what rules have to say --------------------------------------------------------------------


def test_rules_speak_of_keys() -> None:
    net = taking(
        {
            "security": {"shared-access-key": [{"name": "shop", "primary": KEY}]},
            "rule": [
                {"who": "*", "may-not": "send", "where": "q9"},
                {"who": "key:shop", "may": "send", "where": "q*"},
                {"who": "key:other", "may": "send", "where": "*"},
            ],
        }
    )
    bearer = Bearer(net)
    assert bearer.put(ALL, "") == 202
    assert bearer.may_send("q1")
    assert not bearer.may_send("x1")
    # What a rule refuses in so many words no token gives.
    assert not bearer.may_send("q9")


def test_what_a_key_gives_counts_in_its_virtual_host() -> None:
    net = taking(
        {
            "security": {
                "shared-access-key": [
                    {"name": "shop", "primary": KEY, "may": "send", "virtual-host": "tenant"}
                ]
            },
            "virtual-host": [{"name": "tenant"}],
        }
    )
    here, there = net.connect(), net.connect(hostname="vhost:tenant")
    for client, gets in ((here, False), (there, True)):
        bearer = Bearer(net, client=client)
        assert bearer.put(Q1) == 202
        assert bearer.may_send("q1") is gets


def test_a_token_for_one_tenant_is_none_for_another() -> None:
    """Whatever the rules there give to the key, and whatever the token is put for."""
    table = {"name": "shop", "primary": KEY, "may": "send"}
    rule = {"who": "key:shop", "may": "send", "where": "*"}
    net = taking(
        {
            "security": {"shared-access-key": [table]},
            "virtual-host": [
                {"name": "one", "hostnames": ["one.example"], "rule": [rule]},
                {"name": "two", "hostnames": ["two.example"], "rule": [rule]},
            ],
        }
    )
    token = make_sas("sb://ONE.example/q1", KEY)
    for hostname, gets in (("one.example", 202), ("two.example", 401), ("elsewhere", 401)):
        bearer = Bearer(net, client=net.connect(hostname=hostname))
        for name in ("q1", "sb://one.example/q1"):
            assert bearer.put(token, name) == gets
    # A host that is no tenant's is a name for the broker that it does not know of.
    assert bearer.put(make_sas("sb://broker.example/q1", KEY), "q1") == 202


def test_a_request_has_its_size() -> None:
    """Requests wait for keys: nobody keeps his luggage here meanwhile."""
    bearer = Bearer(shop())
    answer = bearer.ask(
        AmqpValue(Q1), operation="put-token", type=SAS, name="q1", more="x" * 20_000
    )
    assert answer.status == 400 and "bytes" in answer.description
    assert bearer.put(Q1) == 202


def test_an_alias_means_its_node() -> None:
    net = taking(
        {
            "security": {
                "shared-access-key": [
                    {"name": "shop", "primary": KEY, "may": "send", "where": "q1"}
                ]
            },
            "alias": [{"name": "nick", "to": "q1"}],
        }
    )
    bearer = Bearer(net)
    assert bearer.put(make_sas("nick", KEY), "nick") == 202
    assert bearer.may_send("nick")


def jwt_broker(tmp_path: Path, **issuer: object) -> Network:
    path = tmp_path / "keys.json"
    path.write_text(jwks(ec_key()))
    table = {"issuer": ISSUER, "audience": AUDIENCE, "keys": str(path), "leeway": 0, **issuer}
    return taking(
        {
            "security": {"jwt": table},
            "rule": [
                {"who": "user:alice", "may": ["send", "receive"], "where": ["q*", "own.{user}"]},
                {"who": "claim:scope=admin", "may": "*", "where": "*"},
            ],
        }
    )


def test_a_jwt_gives_what_rules_say_of_its_bearer(tmp_path: Path) -> None:
    bearer = Bearer(jwt_broker(tmp_path))
    assert bearer.put(make_jwt(), "sb://host/q1", JWT) == 202
    assert bearer.may_send("q1") and not bearer.may_send("q2")
    assert bearer.put(make_jwt(), "", JWT) == 202
    assert bearer.may_send("q2") and bearer.may_send("own.alice")
    assert not bearer.may_send("own.bob") and not bearer.may_send("x")
    assert bearer.put(make_jwt(sub="bob"), "x", JWT) == 202
    assert not bearer.may_send("x")
    assert bearer.put(make_jwt(sub="bob", scope="read admin"), "x", JWT) == 202
    assert bearer.may_send("x")


def test_bad_jwts(tmp_path: Path) -> None:
    bearer = Bearer(jwt_broker(tmp_path))
    assert bearer.put(make_jwt(aud="other"), "q1", JWT) == 401
    assert bearer.put(make_jwt(exp=NOW), "q1", JWT) == 401
    # A JWT is no shared access signature, and nobody has a key here.
    assert bearer.put(make_jwt(), "q1", SAS) == 401
    assert bearer.put(Q1, "q1", SAS) == 401
    assert not bearer.may_send("q1")


# -- keys that have to be fetched --------------------------------------------------------------


async def settle(net: Network, until: object) -> None:
    """Let the event loop and the broker go on until something is so."""
    for _ in range(1000):
        net.run()
        if until():  # type: ignore[operator]
            return
        await asyncio.sleep(0)
    raise AssertionError("it has not come to that")


async def test_tokens_wait_for_their_keys_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {"issuer": ISSUER, "audience": AUDIENCE, "keys": "http://127.0.0.1:1/", "leeway": 0}
    net = taking(
        {
            "security": {
                "jwt": table,
                "shared-access-key": {"name": "shop", "primary": KEY, "may": "send"},
            },
            "rule": [{"who": "user:alice", "may": "send", "where": "*"}],
        }
    )
    published = asyncio.Event()
    fetched = 0

    async def get(self: KeyUrl) -> bytes:
        nonlocal fetched
        fetched += 1
        await published.wait()
        return jwks(ec_key()).encode()

    monkeypatch.setattr(KeyUrl, "_get", get)
    bearer, other = Bearer(net), Bearer(net)

    def post(bearer: Bearer, id: str, token: str, name: str) -> None:
        bearer.sender.send_sections(
            Properties(message_id=id),
            ApplicationProperties({"operation": "put-token", "type": JWT, "name": name}),
            AmqpValue(token),
        )

    post(bearer, "one", make_jwt(), "q1")
    post(bearer, "two", make_sas("q2", KEY), "q2")
    post(bearer, "three", make_jwt(aud="other"), "q3")
    post(other, "four", make_jwt(), "q4")
    # Others do not wait for that.
    third = Bearer(net)
    third.put_for("q1")
    await settle(net, lambda: fetched > 0)
    assert not bearer.receiver.deliveries and not bearer.may_send("q2")
    published.set()
    await settle(net, lambda: len(bearer.receiver.deliveries) == 3 and other.receiver.deliveries)
    answers = [read_answer(delivery.payload) for delivery in bearer.receiver.deliveries]
    assert [answer.about.correlation_id for answer in answers] == ["one", "two", "three"]
    assert [answer.status for answer in answers] == [202, 202, 401]
    assert fetched == 1
    assert bearer.may_send("q1") and bearer.may_send("q2") and other.may_send("q4")
    # Now they are there, and nothing waits.
    bearer.receiver.take()
    assert bearer.put(make_jwt(), "q5", JWT) == 202


async def test_a_client_that_is_gone_when_its_keys_come(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {"issuer": ISSUER, "audience": AUDIENCE, "keys": "http://127.0.0.1:1/", "leeway": 0}
    net = taking({"security": {"jwt": table}})
    published, asked = asyncio.Event(), asyncio.Event()

    async def get(self: KeyUrl) -> bytes:
        asked.set()
        await published.wait()
        return jwks(ec_key()).encode()

    monkeypatch.setattr(KeyUrl, "_get", get)
    bearer = Bearer(net)
    bearer.sender.send_sections(
        Properties(message_id="one"),
        ApplicationProperties({"operation": "put-token", "type": JWT, "name": "q1"}),
        AmqpValue(make_jwt()),
    )
    await asked.wait()
    bearer.client.lose()
    published.set()
    waiting = net.space.nodes["$cbs"].answer.__self__._waiting  # type: ignore[attr-defined]
    await settle(net, lambda: not waiting)
    assert Bearer(net).put(make_jwt(), "q1", JWT) == 202
    assert Timestamp(NOW)


async def test_so_many_wait_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {"issuer": ISSUER, "audience": AUDIENCE, "keys": "http://127.0.0.1:1/", "leeway": 0}
    net = taking({"security": {"jwt": table}})
    published = asyncio.Event()

    async def get(self: KeyUrl) -> bytes:
        await published.wait()
        raise ValueError("none")

    monkeypatch.setattr(KeyUrl, "_get", get)
    bearer = Bearer(net)
    for number in range(101):
        bearer.sender.send_sections(
            Properties(message_id=number),
            ApplicationProperties({"operation": "put-token", "type": JWT, "name": "q1"}),
            AmqpValue(make_jwt()),
        )
    (delivery,) = bearer.receiver.deliveries
    answer = read_answer(delivery.payload)
    assert (answer.status, answer.about.correlation_id) == (429, 100)
    published.set()
    await settle(net, lambda: len(bearer.receiver.deliveries) == 101)
    statuses = {read_answer(each.payload).status for each in bearer.receiver.deliveries[1:]}
    assert statuses == {401}
