"""A token is good for the address that was signed: no name that leads elsewhere widens it.

The key is for everything and may do everything; so only the address that was signed limits the
token. Whoever has the token may also send to `orders`, like everybody.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ferrymq_broker.management.setup import install
from ferrymq_types.messaging import Data, Properties, Rejected
from tests.broker.harness import Network
from tests.broker.management.asker import Asker
from tests.broker.tokens.bearers import KEY, UNAUTHORIZED, Bearer, taking
from tests.broker.tokens.makers import make_sas

EVERYTHING = ["*", "dynamic.*"]


def broker(**tables: object) -> Network:
    """A broker with a key for everything."""
    net = taking(
        {
            "security": {
                "shared-access-key": [
                    {"name": "shop", "primary": KEY, "may": "*", "where": EVERYTHING}
                ]
            },
            "rule": [
                {"who": "*", "may": "send", "where": "orders"},
                {"who": "*", "may": "create", "where": "dynamic.*"},
            ],
            "queue": [
                *({"name": name} for name in ("team", "team/in", "orders", "bills", "plain")),
                {"pattern": "team/made/*"},
            ],
            "exchange": [{"name": "team/fork", "routing": "fanout"}],
            "topic": [{"name": "team/news"}, {"name": "news"}],
            "redirect": [{"name": "team/away", "host": "elsewhere"}],
            **tables,
        }
    )
    install(net.space, net.broker)
    return net


def bearer_of(net: Network, scope: str, name: str | None = None) -> Bearer:
    """A client with a token that was signed for `scope`, and put for a name."""
    bearer = Bearer(net)
    expires = net.wall // 1000 + 3600
    assert bearer.put(make_sas(scope, KEY, expires=expires), scope if name is None else name) == 202
    return bearer


def may_receive(bearer: Bearer, address: str) -> bool:
    receiver = bearer.client.receiver(address)
    if not receiver.detached:
        receiver.close()
        return True
    assert receiver.error is not None and receiver.error.condition == UNAUTHORIZED, receiver.error
    return False


# -- aliases --------------------------------------------------------------------------------------


def test_an_alias_below_what_was_signed_leads_out_of_it() -> None:
    net = broker(alias=[{"name": "team/x", "to": "orders"}])
    for name in ("team", "team/x"):
        bearer = bearer_of(net, "team", name)
        assert not may_receive(bearer, "orders") and not may_receive(bearer, "team/x")
        assert not bearer.may_send("bills")
    assert may_receive(bearer_of(net, "team"), "team/in")


def test_an_alias_below_what_was_signed_may_stay_within_it() -> None:
    """As the partitions of an event hub do, for the clients that name them in their way."""
    net = broker(alias=[{"name": "team/x", "to": "team/in"}])
    assert may_receive(bearer_of(net, "team", "team/x"), "team/in")


def test_an_alias_that_was_signed_is_what_it_leads_to() -> None:
    net = broker(alias=[{"name": "nick", "to": "orders"}, {"name": "nick/x", "to": "bills"}])
    bearer = bearer_of(net, "nick")
    assert may_receive(bearer, "nick") and may_receive(bearer, "orders")
    assert not may_receive(bearer, "bills") and not may_receive(bearer, "nick/x")
    assert not may_receive(bearer_of(net, "nick", "nick/x"), "bills")


def test_an_alias_that_was_signed_counts_if_the_key_is_for_what_it_means() -> None:
    key = {"name": "shop", "primary": KEY, "may": "*", "where": ["nick", "team*"]}
    net = broker(security={"shared-access-key": [key]}, alias=[{"name": "nick", "to": "bills"}])
    bearer = bearer_of(net, "nick")
    assert not may_receive(bearer, "bills") and not may_receive(bearer, "nick")


def test_an_alias_that_is_made_later_widens_nothing() -> None:
    net = broker()
    bearer = bearer_of(net, "team")
    net.space.set_alias("team/later", "orders")
    net.space.remove(net.space.nodes["team"])
    net.space.set_alias("team", "bills")
    assert not may_receive(bearer, "team/later") and not may_receive(bearer, "orders")
    assert not may_receive(bearer, "team") and not may_receive(bearer, "bills")


@pytest.mark.parametrize("name", ["team/x", "free"])
def test_nobody_makes_himself_an_alias_that_widens_his_token(name: str) -> None:
    """He may send to orders, and might have a name for that; it would be one to receive by."""
    net = broker()
    scope = name.partition("/")[0]
    bearer = bearer_of(net, scope)
    asker = Asker(net, bearer.client)
    assert asker.ask("CREATE", "alias", name, {"address": "orders"}).status == 403
    assert asker.ask("CREATE", "alias", name, {"address": f"{scope}/in"}).status == 201
    assert asker.ask("UPDATE", "alias", name, {"address": "orders"}).status == 403
    assert not may_receive(bearer_of(net, scope, name), "orders")


# -- everything else that leads from one address to another ----------------------------------------


def manage(operation: str, type: str, name: str, body: object) -> Callable[[Bearer], int]:
    return lambda bearer: Asker(bearer.net, bearer.client).ask(operation, type, name, body).status


@pytest.mark.parametrize(
    "request_",
    [
        manage("CREATE", "queue", "team/new", {"dead-letter": "bills"}),
        manage("CREATE", "queue", "team/new", {"expired": "bills"}),
        # To send there is not enough: who names a place of dead letters decides who reads them.
        manage("CREATE", "queue", "team/new", {"dead-letter": "orders"}),
        manage("UPDATE", "queue", "team/in", {"dead-letter": "bills"}),
        manage("CREATE", "topic", "team/new", {"subscription": {"dead-letter": "bills"}}),
        manage("CREATE", "exchange", "team/new", {"alternate": "bills"}),
        manage("CREATE", "binding", "", {"exchange": "team/fork", "destination": "bills"}),
        manage("CREATE", "binding", "", {"exchange": "news", "destination": "team/in"}),
        manage("CREATE", "alias", "team/x", {"address": "bills"}),
        manage("CREATE", "alias", "team/x", {"address": "bills::part"}),
        manage("MOVE", "queue", "team/in", {"target": "bills"}),
        manage("MOVE", "queue", "bills", {"target": "team/in"}),
        manage("PEEK", "queue", "bills", {}),
        manage("PURGE", "queue", "bills", {}),
        manage("READ", "queue", "bills", None),
        manage("DELETE", "queue", "bills", None),
        manage("CREATE", "subscription", "news::mine", {}),
        manage("CREATE", "queue", "teammate", {}),
    ],
)
def test_management_names_nothing_outside(request_: Callable[[Bearer], int]) -> None:
    assert request_(bearer_of(broker(), "team")) == 403


@pytest.mark.parametrize(
    ("operation", "type", "name", "body"),
    [
        ("CREATE", "queue", "team/new", {"dead-letter": "team/dead"}),
        ("CREATE", "alias", "team/x", {"address": "team/in"}),
        ("MOVE", "queue", "team/in", {"target": "team"}),
        ("CREATE", "binding", None, {"exchange": "team/fork", "destination": "team/in"}),
    ],
)
def test_within_the_scope_the_same_is_allowed(
    operation: str, type: str, name: str | None, body: object
) -> None:
    asker = Asker(net := broker(), bearer_of(net, "team").client)
    assert asker.ask(operation, type, name, body).status in (200, 201)


@pytest.mark.parametrize("address", ["news::mine", "bills::0", "team:::x", "teammate"])
def test_parts_are_those_of_the_scope(address: str) -> None:
    bearer = bearer_of(broker(), "team")
    assert not may_receive(bearer, address) and not bearer.may_send(address)


def test_an_anonymous_terminus_asks_about_every_message() -> None:
    net = broker(alias=[{"name": "team/x", "to": "bills"}])
    sender = bearer_of(net, "team").client.sender(None)
    for to in ("bills", "team/x", "teammate"):
        delivery = sender.send_sections(Properties(to=to), Data(value=b"x"))
        state = delivery.remote_state
        assert isinstance(state, Rejected) and state.error is not None
        assert state.error.condition == UNAUTHORIZED
    assert net.queue("bills").message_count() == 0
    sender.send_sections(Properties(to="team/in"), Data(value=b"x"))
    assert net.queue("team/in").message_count() == 1


def test_a_response_goes_where_its_client_may_send() -> None:
    net = broker(alias=[{"name": "team/x", "to": "bills"}])
    for reply_to in ("bills", "team/x"):
        bearer = bearer_of(net, "team")
        sender = bearer.client.sender("$management")
        sender.send_sections(Properties(message_id="1", reply_to=reply_to), Data(value=b""))
        assert net.queue("bills").message_count() == 0


def test_what_is_below_the_scope_is_made_within_it() -> None:
    net = broker()
    bearer = bearer_of(net, "team")
    assert bearer.may_send("team/made/1")
    assert "team/made/1" in net.space.nodes


def test_a_redirect_is_told_to_those_whose_token_is_for_it() -> None:
    net = broker()
    receiver = bearer_of(net, "team").client.receiver("team/away")
    assert receiver.error is not None and receiver.error.condition == "amqp:link:redirect"
    assert not may_receive(bearer_of(net, "plain"), "team/away")
