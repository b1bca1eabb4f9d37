"""Which right takes what at which address; and that who may not learns nothing."""

from __future__ import annotations

import pytest

from ferrymq_broker.management import ADDRESS
from ferrymq_broker.management.policies import node_policy
from ferrymq_broker.nodes.exchanges.exchange import Exchange
from ferrymq_broker.nodes.service import ServiceNode
from ferrymq_broker.values.rights import RIGHTS
from tests.broker.harness import Network
from tests.broker.lasting import lasting_source
from tests.broker.management.asker import Answer, Asker, request_sections
from tests.broker.management.rules import guard, rule, user

_BOUND = {"exchange": "e", "destination": "q", "key": "k"}

# Of all that there is, what it takes: operation, type, name, arguments, and where which right.
FENCE = [("send", "$fence/g"), ("manage", "$management")]
TABLE = [
    ("READ", "queue", "q", None, [("send", "q"), ("receive", "q"), ("browse", "q")]),
    ("READ", "queue", "q-alias", None, [("send", "q")]),
    ("CREATE", "queue", "new", None, [("create", "new")]),
    ("CREATE", "topic", "new", None, [("create", "new")]),
    ("CREATE", "queue", "q", None, [("create", "q")]),
    ("UPDATE", "queue", "q", {"max-length": 5}, [("manage", "q")]),
    ("UPDATE", "queue", "q-alias", {"max-length": 5}, [("manage", "q")]),
    ("DELETE", "queue", "q", None, [("delete", "q")]),
    ("PURGE", "queue", "q", None, [("manage", "q")]),
    ("PEEK", "queue", "q", None, [("browse", "q")]),
    ("PEEK", "queue", "dead", None, [("dead-letter", "dead")]),
    ("PEEK", "queue", "late-alias", None, [("dead-letter", "late")]),
    ("PEEK-SCHEDULED", "queue", "q", None, [("browse", "q")]),
    ("CANCEL-SCHEDULED", "queue", "q", {"sequences": [1]}, [("send", "q")]),
    ("RENEW-LOCKS", "queue", "q", {"tokens": [bytes(16)]}, [("receive", "q")]),
    ("SETTLE", "queue", "q", {"tokens": [bytes(16)], "outcome": "accepted"}, [("receive", "q")]),
    ("RECEIVE-DEFERRED", "queue", "q", {"sequences": [1]}, [("receive", "q")]),
    ("RECEIVE-DEFERRED", "subscription", "t::s", {"sequences": [1]}, [("receive", "t")]),
    ("RENEW-LOCKS", "queue", "dead", {"tokens": [bytes(16)]}, [("dead-letter", "dead")]),
    ("RENEW-LOCKS", "subscription", "t::s", {"tokens": [bytes(16)]}, [("receive", "t")]),
    ("LEASE", "queue", "q", {"holder": "h", "number": 1}, [("receive", "q")]),
    ("LIST-LEASES", "queue", "q", {}, [("receive", "q")]),
    ("SETTLE-LEASES", "queue", "dead", {"holder": "h", "until": 1}, [("dead-letter", "dead")]),
    ("RELEASE-LEASES", "queue", "q", {"holder": "h"}, [("receive", "q")]),
    ("READ", "topic", "t", None, [("send", "t")]),
    ("UPDATE", "topic", "t", {"max-subscriptions": 5}, [("manage", "t")]),
    ("DELETE", "topic", "t", None, [("delete", "t")]),
    ("READ", "stream", "s", None, [("receive", "s")]),
    ("UPDATE", "stream", "s", {"partitions": 2}, [("manage", "s")]),
    ("PURGE", "stream", "s", None, [("manage", "s")]),
    ("PEEK", "stream", "s", None, [("browse", "s"), ("receive", "s")]),
    ("RANGES", "stream", "s", None, [("browse", "s"), ("receive", "s")]),
    ("LOCATE", "stream", "s", {"positions": []}, [("browse", "s"), ("receive", "s")]),
    ("HOLD", "stream", "s", {"holder": "h", "offsets": []}, [("manage", "s")]),
    ("RELEASE", "stream", "s", {"holder": "h"}, [("manage", "s")]),
    ("DELETE", "stream", "s", None, [("delete", "s")]),
    ("READ", "exchange", "e", None, [("send", "e")]),
    ("UPDATE", "exchange", "e", {"auto-delete": 5}, [("manage", "e")]),
    ("DELETE", "exchange", "e", None, [("delete", "e")]),
    ("READ", "binding", "e/k/q", None, [("create", "e"), ("manage", "e")]),
    ("DELETE", "binding", "e/k/q", None, [("manage", "e"), ("delete", "e")]),
    ("DELETE", "binding", None, _BOUND, [("delete", "e"), ("manage", "e")]),
    ("READ", "subscription", "t::s", None, [("manage", "t")]),
    ("CREATE", "subscription", "t::new", None, [("manage", "t"), ("create", "t")]),
    ("UPDATE", "subscription", "t::s", {"max-length": 5}, [("manage", "t")]),
    ("DELETE", "subscription", "t::s", None, [("manage", "t")]),
    ("PURGE", "subscription", "t::s", None, [("manage", "t")]),
    ("PEEK", "subscription", "t::s", None, [("manage", "t")]),
    ("READ", "alias", "q-alias", None, [("manage", "q-alias"), ("send", "q")]),
    ("DELETE", "alias", "q-alias", None, [("delete", "q-alias")]),
    ("READ", "fence", None, {"group": "g", "member": "m"}, FENCE),
    ("READ", "fence", None, {"group": "g", "member": "m", "target": "q"}, [*FENCE, ("send", "q")]),
    ("READ", "fence", "g\nm\nq-alias", None, [*FENCE, ("send", "q")]),
    ("LATEST", "fence", None, {"group": "g", "target": "q"}, [*FENCE, ("send", "q")]),
    ("MEMBERS", "fence", "g", {"target": "q", "members": []}, [*FENCE, ("send", "q")]),
    ("REPEAT", "fence", "g\nm\nq", {"sequence": 1}, [*FENCE, ("send", "q")]),
    ("DELETE", "fence", "g\nm", None, FENCE),
    ("DELETE", "fence", "g\nm\nq", None, [*FENCE, ("send", "q")]),
    ("DELETE", "fence", "g", None, FENCE),
    ("READ", "broker", "broker", None, [("manage", "$management")]),
    ("READ", "virtual-host", "default", None, [("manage", "$management")]),
]  # fmt: skip


def _furnish(net: Network) -> None:
    space = net.space
    space.create("q", node_policy("queue", {"dead-letter": "dead", "expired": "late-alias"}))
    for name in ("dead", "late", "secret"):
        space.create(name, node_policy("queue", {}))
    topic = space.create("t", node_policy("topic", {}))
    assert topic.address == "t"
    space.create("s", node_policy("stream", {}))
    exchange = space.create("e", node_policy("exchange", {}))
    assert isinstance(exchange, Exchange)
    exchange.bind("q", "k", {})
    space.set_alias("q-alias", "q")
    space.set_alias("late-alias", "late")
    space.auto_create = space.auto_create_topic = None
    assert Asker(net).ask("CREATE", "subscription", "t::s").status == 201


@pytest.fixture
def net(net: Network) -> Network:
    _furnish(net)
    return net


def _allowed(answer: Answer) -> bool:
    """Whether somebody was let do it; what came of it does not matter."""
    return answer.status != 403


@pytest.mark.parametrize(("operation", "type", "name", "body", "enough"), TABLE)
def test_what_it_takes(
    net: Network,
    operation: str,
    type: str,
    name: str | None,
    body: object,
    enough: list[tuple[str, str]],
) -> None:
    rights = list(RIGHTS)
    places = [where for _, where in enough]
    # Everything elsewhere, and a right that has nothing to do with it here, are not enough.
    guard(
        net,
        rule("user:eve", "", " ".join(places), may_not="*"),
        rule("user:eve", "*", "*"),
        *(rule(f"user:u{at}", right, where) for at, (right, where) in enumerate(enough)),
    )
    assert user(net, "eve").ask(operation, type, name, body).status == 403
    for at in range(len(enough)):
        asker = user(net, f"u{at}")
        answer = asker.ask(operation, type, name, body)
        assert _allowed(answer), (at, answer.description)
        asker.client.close()
        _repair(net)
    if len({right for right, _ in enough}) < 3:
        # One of the others alone does not do, but to be seen.
        useless = [right for right in rights if right not in {right for right, _ in enough}]
        if operation != "READ":
            guard(net, rule("user:mallory", " ".join(useless), " ".join(places)))
            assert user(net, "mallory").ask(operation, type, name, body).status == 403


def _repair(net: Network) -> None:
    """Let there be again what was deleted."""
    for address, kind in (("q", "queue"), ("t", "topic"), ("s", "stream"), ("e", "exchange")):
        if address not in net.space.nodes:
            net.space.create(address, node_policy(kind, {}))
    if "new" in net.space.nodes:
        net.space.remove(net.space.nodes["new"])


def test_every_operation_is_asked_about(net: Network) -> None:
    admin = Asker(net)
    operations = admin.ask("GET-OPERATIONS", "org.amqp.management", "self").map()
    guard(net, rule("user:eve", "send", "nothing"))
    eve = user(net, "eve")
    assert len(operations) >= 14
    for type, found in operations.items():
        assert isinstance(found, dict)
        for operation in found:
            answer = eve.ask(operation, str(type), "q", {"exchange": "e", "group": "g"})
            assert answer.status == 403, (type, operation)
            assert answer.properties["errorCondition"] == "amqp:unauthorized-access"


def test_discovery_is_for_everybody(net: Network) -> None:
    guard(net)
    eve = user(net, "eve")
    for operation in ("GET-TYPES", "GET-ATTRIBUTES", "GET-OPERATIONS", "GET-ANNOTATIONS"):
        assert eve.ask(operation, "org.amqp.management", "self").status == 200


@pytest.mark.parametrize("operation", ["READ", "UPDATE", "DELETE", "PURGE", "PEEK", "CREATE"])
@pytest.mark.parametrize("type", ["queue", "topic", "stream", "exchange", "subscription"])
def test_a_refusal_does_not_tell_whether_it_is_there(
    net: Network, type: str, operation: str
) -> None:
    guard(net, rule("user:eve", "*", "mine"))
    eve = user(net, "eve")
    for there, missing in (("secret", "nosuch"), ("t::s", "t::x"), ("q-alias", "q-alibi")):
        first = eve.ask(operation, type, there)
        second = eve.ask(operation, type, missing)
        assert first.status == second.status
        assert first.description.replace(there, "X") == second.description.replace(missing, "X")


def test_bad_arguments_do_not_tell_either(net: Network) -> None:
    guard(net)
    eve = user(net, "eve")
    for name in ("secret", "nosuch"):
        answer = eve.ask("CREATE", "queue", name, {"max-length": "many", "nonsense": 1})
        assert answer.status == 403
    for target in ("secret", "nosuch"):
        assert eve.ask("MOVE", "queue", "q", {"target": target, "count": -1}).status == 403


@pytest.mark.parametrize(
    ("operation", "type", "name", "arguments"),
    [
        ("CREATE", "queue", "mine.new", {"dead-letter": "secret"}),
        ("CREATE", "queue", "mine.new", {"expired": "secret"}),
        ("CREATE", "queue", "mine.new", {"dead-letter": "to-secret"}),
        ("CREATE", "topic", "mine.new", {"subscription": {"dead-letter": "secret"}}),
        ("CREATE", "exchange", "mine.new", {"alternate": "secret"}),
        ("UPDATE", "queue", "mine", {"dead-letter": "secret"}),
        ("UPDATE", "topic", "mine.t", {"subscription": {"expired": "secret"}}),
        ("UPDATE", "subscription", "mine.t::s2", {"dead-letter": "secret"}),
        ("CREATE", "subscription", "mine.t::new", {"dead-letter": "secret"}),
        ("CREATE", "alias", "mine.alias", {"address": "secret"}),
        ("CREATE", "alias", "mine.alias", {"address": "to-secret"}),
        ("UPDATE", "alias", "mine.a", {"address": "secret"}),
        ("CREATE", "binding", None, {"exchange": "mine.e", "destination": "secret"}),
        ("CREATE", "binding", None, {"exchange": "mine.e", "destination": "to-secret"}),
        ("MOVE", "queue", "mine", {"target": "secret"}),
        ("MOVE", "queue", "mine", {"target": "to-secret"}),
        ("MOVE", "subscription", "mine.t::s2", {"target": "secret"}),
    ],
)
def test_nothing_flows_where_one_may_not_send(
    net: Network, operation: str, type: str, name: str | None, arguments: dict[str, object]
) -> None:
    admin = Asker(net)
    for kind, address in (("queue", "mine"), ("topic", "mine.t"), ("exchange", "mine.e")):
        net.space.create(address, node_policy(kind, {}))
    assert admin.ask("CREATE", "subscription", "mine.t::s2").status == 201
    net.space.set_alias("mine.a", "mine")
    net.space.set_alias("to-secret", "secret")
    guard(
        net,
        rule("user:eve", "*", "mine mine.*"),
        rule("user:bob", "*", "mine mine.*"),
        rule("user:bob", "send manage", "secret"),
    )
    refused = user(net, "eve").ask(operation, type, name, arguments)
    assert refused.status == 403
    assert "send at" in refused.description
    allowed = user(net, "bob").ask(operation, type, name, arguments)
    assert _allowed(allowed), allowed.description


def test_messages_move_with_the_rights_at_both_ends(net: Network) -> None:
    guard(
        net,
        rule("user:bob", "receive", "q dead"),
        rule("user:bob", "send", "secret q"),
        rule("user:dora", "dead-letter", "dead"),
        rule("user:dora", "send", "q"),
    )
    bob, dora = user(net, "bob"), user(net, "dora")
    assert bob.ask("MOVE", "queue", "q", {"target": "secret"}).status == 200
    # What could not be processed is not for everybody who may receive.
    assert bob.ask("MOVE", "queue", "dead", {"target": "q"}).status == 403
    assert dora.ask("MOVE", "queue", "dead", {"target": "q"}).status == 200
    assert dora.ask("MOVE", "queue", "q", {"target": "dead"}).status == 403


def test_lists_and_totals_have_what_one_may_see(net: Network) -> None:
    guard(net, rule("user:eve", "send", "q"), rule("user:bob", "manage", "t e s"))
    eve, bob = user(net, "eve"), user(net, "bob")

    def seen(asker: Asker, type: str) -> list[object]:
        body = {"entityType": type, "count": 1}
        total = asker.ask("QUERY", "org.amqp.management", "self", body).properties["total"]
        names = [row["identity"] for row in asker.query(type)]
        assert total == len(names)
        return names

    assert seen(eve, "queue") == ["q"]
    assert seen(eve, "alias") == ["q-alias"]
    for type in ("topic", "stream", "exchange", "binding", "subscription", "fence", "terminus"):
        assert seen(eve, type) == []
    for type in ("broker", "virtual-host"):
        assert seen(eve, type) == []
    assert seen(bob, "org.ferrymq.node") == ["e", "s", "t"]
    assert seen(bob, "subscription") == ["t::s"]
    assert seen(bob, "binding") == ["e/k/q"]
    assert seen(eve, "connection") == [str(eve.client.handler.client.id)]


def test_ones_own_connection_may_be_seen_and_closed(net: Network) -> None:
    guard(net)
    eve, bob = user(net, "eve"), user(net, "bob")
    mine, other = str(eve.client.handler.client.id), str(bob.client.handler.client.id)
    assert eve.ask("READ", "connection", mine).map()["user"] == "eve"
    assert eve.ask("READ", "session", f"{mine}/0").status == 200
    assert {row["connection"] for row in eve.query("link")} == {mine}
    for name in (other, "4711"):
        assert eve.ask("READ", "connection", name).status == 403
        assert eve.ask("DELETE", "connection", name).status == 403
    assert eve.ask("DELETE", "connection", mine).status == 204
    assert eve.client.handler.output.over and not bob.client.handler.output.over


def test_ones_own_subscription(net: Network) -> None:
    guard(
        net,
        rule("user:eve", "receive", "t"),
        rule("user:bob", "receive", "t"),
        rule("user:carl", "manage", "t"),
    )
    eve, bob, carl = user(net, "eve"), user(net, "bob"), user(net, "carl")
    source = lasting_source("t")
    eve.client.receiver("t", source=source, name="mine")
    (row,) = eve.query("subscription")
    address = str(row["identity"])
    assert address.startswith("t::eve@")
    assert [r["identity"] for r in bob.query("subscription")] == []
    for operation in ("READ", "PEEK", "PURGE"):
        assert eve.ask(operation, "subscription", address).status == 200
        assert carl.ask(operation, "subscription", address).status == 200
        assert bob.ask(operation, "subscription", address).status == 403
    (terminus,) = [r["identity"] for r in eve.query("terminus")] or [None]
    if terminus is not None:
        assert bob.ask("READ", "terminus", str(terminus)).status == 403
    net.space.rules[:] = [r for r in net.space.rules if r.where[0].text != "t"]
    late = user(net, "eve")
    assert late.ask("READ", "subscription", address).status == 403


def test_an_answer_goes_only_where_the_one_who_asks_may_send(net: Network) -> None:
    guard(net, rule("user:bob", "send", "q"))
    before = net.queue("secret").message_count()
    for name, reply_to, condition in (
        ("eve", "secret", "amqp:unauthorized-access"),
        ("eve", "nosuch", "amqp:unauthorized-access"),
        ("eve", "q-alias", "amqp:unauthorized-access"),
        ("bob", "q-alias", None),
    ):
        asker = user(net, name)
        delivery = asker.sender.send_sections(
            *request_sections("GET-TYPES", None, None, None, reply_to=reply_to, message_id="1")
        )
        state = delivery.remote_state
        error = getattr(state, "error", None)
        assert (None if error is None else error.condition) == condition
    assert net.queue("secret").message_count() == before
    assert net.queue("q").message_count() == 1


def test_without_rules_everybody_may(net: Network) -> None:
    asker = Asker(net)
    assert asker.ask("READ", "broker", "broker").status == 200
    assert asker.ask("CREATE", "queue", "new", {"dead-letter": "secret"}).status == 201
    assert isinstance(net.space.nodes[ADDRESS], ServiceNode)
