"""Rights that end with time: links are dropped, connections closed, and renewal disturbs nobody."""

from __future__ import annotations

from pathlib import Path

import pytest

from ferrymq.engine.events import AttachReceived, DetachReceived
from ferrymq_types.messaging import Accepted, Data, Properties, Rejected
from tests.broker.harness import Client, Endpoint, Network
from tests.broker.tokens.bearers import JWT, KEY, UNAUTHORIZED, Bearer, shop, taking
from tests.broker.tokens.makers import AUDIENCE, ISSUER, NOW, ec_key, jwks, make_jwt, make_sas


def dropped(endpoint: Endpoint) -> bool:
    """Whether a link was dropped for its rights."""
    if not endpoint.detached:
        return False
    assert endpoint.error is not None and endpoint.error.condition == UNAUTHORIZED
    return True


def closed(client: Client) -> str | None:
    """Why a connection was closed for its rights; None if it is open."""
    if client.closed_with is None:
        assert client.terminated is None
        return None
    assert client.closed_with.condition == UNAUTHORIZED
    return client.closed_with.description


# -- tokens that lapse -------------------------------------------------------------------------


def test_links_are_dropped_when_their_token_lapses() -> None:
    net = shop()
    bearer = Bearer(net)
    bearer.put_for("q1", 60)
    bearer.put_for("q2", 90)
    one, two = bearer.client.sender("q1"), bearer.client.sender("q2")
    taker = bearer.client.receiver("q1", credit=10)
    one.send(b"message")
    assert taker.bodies() == [b"message"]
    net.advance(59.5)
    assert not one.detached and not taker.detached
    net.advance(1)
    assert dropped(one) and dropped(taker) and not two.detached
    # What was not settled is there for others.
    assert net.queue("q1").message_count() == 1
    assert not bearer.may_send("q1") and bearer.may_send("q2")
    net.advance(30)
    assert dropped(two)
    # The links to $cbs stay, and the next token counts again.
    bearer.put_for("q1", 60)
    assert bearer.may_send("q1")


def test_renewal_disturbs_nobody() -> None:
    net = shop()
    bearer = Bearer(net)
    bearer.put_for("q1", 60)
    sender = bearer.client.sender("q1")
    taker = bearer.client.receiver("q1", credit=1000)
    events = len(bearer.client.events)
    for _ in range(20):
        net.advance(50)
        (delivery,) = sender.send(b"message")
        assert isinstance(delivery.remote_state, Accepted)
        bearer.put_for("q1", 60)
    assert len(taker.deliveries) == 20
    changes = [
        event
        for event in bearer.client.events[events:]
        if isinstance(event, AttachReceived | DetachReceived)
    ]
    assert changes == []
    net.advance(61)
    assert dropped(sender) and dropped(taker)


def test_a_token_that_gives_less_takes_the_links_of_the_one_before() -> None:
    table = {"name": "shop", "primary": KEY, "may": ["send", "receive"]}
    reader = {"name": "reader", "primary": KEY, "may": "receive"}
    net = taking({"security": {"shared-access-key": [table, reader]}})
    bearer = Bearer(net)
    bearer.put_for("q1")
    sender, taker = bearer.client.sender("q1"), bearer.client.receiver("q1")
    assert bearer.put(make_sas("q1", KEY, "reader"), "q1") == 202
    assert dropped(sender) and not taker.detached


def test_two_tokens_that_cover_the_same() -> None:
    net = shop()
    bearer = Bearer(net)
    bearer.put_for("q1", 60)
    bearer.put_for("sb://localhost/", 90)
    sender = bearer.client.sender("q1")
    net.advance(61)
    assert not sender.detached
    net.advance(30)
    assert dropped(sender)


def test_messages_of_the_anonymous_terminus_lapse_with_the_token() -> None:
    net = shop()
    bearer = Bearer(net)
    bearer.put_for("q1", 60)
    sender = bearer.client.sender(None)

    def post() -> object:
        return sender.send_sections(Properties(to="q1"), Data(b"x")).remote_state

    assert isinstance(post(), Accepted)
    net.advance(61)
    state = post()
    assert isinstance(state, Rejected) and state.error is not None
    assert state.error.condition == UNAUTHORIZED
    assert not sender.detached


# -- who brings no token -----------------------------------------------------------------------


def test_who_may_do_nothing_is_closed_in_time() -> None:
    net = shop()
    silent, bearer = net.connect(), Bearer(net)
    bearer.put_for("q1")
    net.advance(19.5)
    assert closed(silent) is None
    net.advance(1)
    assert closed(silent) == "the client has brought no token that gives a right"
    assert closed(bearer.client) is None


def test_bad_tokens_do_not_help() -> None:
    net = shop()
    bearer = Bearer(net)
    for _ in range(3):
        net.advance(5)
        assert bearer.put(make_sas("q1", "a wrong secret"), "q1") == 401
    net.advance(6)
    assert closed(bearer.client)


def test_who_has_lost_everything_has_as_long_again() -> None:
    net = shop()
    bearer = Bearer(net)
    bearer.put_for("q1", 60)
    net.advance(75)
    assert closed(bearer.client) is None
    bearer.put_for("q1", 60)
    net.advance(79)
    assert closed(bearer.client) is None
    net.advance(2)
    assert closed(bearer.client)


@pytest.mark.parametrize("seconds", [3, 90, 200])
def test_the_time_can_be_set(seconds: int) -> None:
    key = {"name": "shop", "primary": KEY, "may": "send"}
    net = taking({"security": {"shared-access-key": [key], "tokens": {"deadline": seconds}}})
    silent = net.connect()
    net.advance(seconds - 0.5)
    assert closed(silent) is None
    net.advance(1)
    assert closed(silent)


def test_who_may_do_something_needs_no_token() -> None:
    key = {"name": "shop", "primary": KEY}
    rule = {"who": "anonymous", "may": "send", "where": "q1"}
    net = taking({"security": {"shared-access-key": [key]}, "rule": [rule]})
    client = net.connect()
    net.advance(1000)
    assert closed(client) is None and client.sender("q1").attached


def test_nothing_is_left_of_connections_that_are_gone() -> None:
    net = shop()
    broker = net.broker
    timers = len(broker.timers) + len(broker.agenda.dates)
    for way in ("close", "lose"):
        bearer = Bearer(net)
        bearer.put_for("q1")
        assert len(broker.timers) + len(broker.agenda.dates) == timers + 1
        getattr(bearer.client, way)()
        assert len(broker.timers) + len(broker.agenda.dates) == timers


# -- logins that expire ------------------------------------------------------------------------


@pytest.fixture
def jwt_net(tmp_path: Path) -> Network:
    path = tmp_path / "keys.json"
    path.write_text(jwks(ec_key()))
    table = {"issuer": ISSUER, "audience": AUDIENCE, "keys": str(path), "leeway": 0}
    key = {"name": "shop", "primary": KEY, "may": "send"}
    return taking(
        {
            "security": {"jwt": table, "shared-access-key": key},
            "rule": [{"who": "user:alice", "may": "send", "where": "q*"}],
        }
    )


def test_a_connection_ends_with_its_token(jwt_net: Network) -> None:
    bearer = Bearer(jwt_net, login=make_jwt(exp=NOW + 60))
    assert bearer.client.handler.client.user == "alice"
    sender = bearer.client.sender("q1")
    jwt_net.advance(59.5)
    (delivery,) = sender.send(b"in time")
    assert isinstance(delivery.remote_state, Accepted)
    assert closed(bearer.client) is None
    jwt_net.advance(1)
    assert closed(bearer.client) == "the token has expired"


def test_a_connection_goes_on_with_another_token(jwt_net: Network) -> None:
    bearer = Bearer(jwt_net, login=make_jwt(exp=NOW + 60))
    sender, other = bearer.client.sender("q1"), bearer.client.sender("q2")
    jwt_net.advance(50)
    assert bearer.put(make_jwt(exp=NOW + 120), "q1", JWT) == 202
    jwt_net.advance(20)
    # What the login gave is gone; what the new token gives is there.
    assert closed(bearer.client) is None
    assert not sender.detached and dropped(other)
    jwt_net.advance(51)
    assert dropped(sender)
    jwt_net.advance(21)
    assert closed(bearer.client) == "the client has brought no token that gives a right"


def test_it_goes_on_as_a_whole_with_a_token_for_all(jwt_net: Network) -> None:
    bearer = Bearer(jwt_net, login=make_jwt(exp=NOW + 60))
    one, two = bearer.client.sender("q1"), bearer.client.sender("q2")
    for minute in range(1, 5):
        assert bearer.put(make_jwt(exp=NOW + 60 * minute + 90), "", JWT) == 202
        jwt_net.advance(60)
        assert closed(bearer.client) is None
        assert not one.detached and not two.detached


@pytest.mark.parametrize("token", [make_jwt(sub="bob", exp=NOW + 600), make_sas("q1", KEY)])
def test_nobody_goes_on_as_somebody_else(jwt_net: Network, token: str) -> None:
    bearer = Bearer(jwt_net, login=make_jwt(exp=NOW + 60))
    assert bearer.put(token, "q1", JWT) == 202
    jwt_net.advance(61)
    assert closed(bearer.client) == "the token has expired"


def test_the_clock_of_the_day_counts(jwt_net: Network) -> None:
    """It may be set while the broker runs."""
    bearer = Bearer(jwt_net, login=make_jwt(exp=NOW + 3600))
    jwt_net.set_clock(3000)
    jwt_net.advance(599)
    assert closed(bearer.client) is None
    jwt_net.advance(61)
    assert closed(bearer.client) == "the token has expired"


def test_the_clock_may_be_set_back() -> None:
    net = shop()
    bearer = Bearer(net)
    bearer.put_for("q1", 120)
    sender = bearer.client.sender("q1")
    net.set_clock(-3000)
    net.advance(121)
    assert not sender.detached
    net.advance(3000)
    assert dropped(sender)
