"""Connections: who may come in, silence, and the many ways to end."""

from __future__ import annotations

import pytest

from ferrymq.engine.sasl import Anonymous, Plain
from ferrymq.engine.scram import SCRAM_MECHANISMS, Scram
from ferrymq.errors import AuthenticationError, RemoteProtocolError, TransportError
from ferrymq_broker.connections.authentication import ClientTransport
from ferrymq_types.messaging import Accepted
from ferrymq_types.transport import Error
from tests.broker.harness import Client, Network
from tests.support.known_users import KnownUsers

USERS = KnownUsers({"alice": "sésame", "bob": ""}, False, False)
FORCED = Error(condition="amqp:connection:forced", description="the broker is shutting down")


@pytest.mark.parametrize("sasl", [None, Anonymous(), Plain("anyone", "anything")])
def test_a_broker_without_users_lets_everybody_in(sasl: Anonymous | Plain | None) -> None:
    client = Network().connect(sasl=sasl)
    assert client.engine.opened


@pytest.mark.parametrize(
    ("sasl", "welcome"),
    [
        (Plain("alice", "sésame"), True),
        (Plain("bob", ""), True),
        (Plain("alice", "wrong"), False),
        (Plain("alice", ""), False),
        (Plain("nobody", "sésame"), False),
        *((Scram(name, "alice", "sésame"), True) for name in SCRAM_MECHANISMS),
        (Scram("SCRAM-SHA-256", "alice", "wrong"), False),
        (Scram("SCRAM-SHA-256", "nobody", "sésame"), False),
        (Anonymous(), False),
        (None, False),
    ],
)
def test_a_broker_with_users_lets_in_those_alone(
    sasl: Anonymous | Plain | Scram | None, welcome: bool
) -> None:
    client = Network(authenticator=USERS).connect(sasl=sasl)
    assert client.engine.opened is welcome
    if not welcome:
        assert client.terminated is not None
        assert isinstance(client.terminated.error, AuthenticationError | TransportError)


def test_unknown_user_and_wrong_password_are_told_the_same() -> None:
    errors = []
    attempts: list[Plain | Scram] = [Plain("nobody", "x"), Plain("alice", "x")]
    attempts += [Scram("SCRAM-SHA-1", name, "x") for name in ("nobody", "alice")]
    for sasl in attempts:
        client = Network(authenticator=USERS).connect(sasl=sasl)
        assert client.terminated is not None
        # The client names the user of its own login.
        errors.append(str(client.terminated.error).replace("alice", "nobody"))
    assert errors[0] == errors[1]
    assert errors[2] == errors[3]


def test_anonymous_is_offered_only_where_it_is_allowed() -> None:
    here = ClientTransport("test")
    assert USERS.mechanisms(here) == [*SCRAM_MECHANISMS, "PLAIN"]
    assert KnownUsers({}, False, True).mechanisms(here) == ["ANONYMOUS"]
    assert KnownUsers({}, True, True).mechanisms(here) == ["ANONYMOUS", "PLAIN"]


def test_a_password_that_scram_does_not_allow_is_good_for_plain() -> None:
    bell = KnownUsers({"carol": "\a"}, False, False)
    assert Network(authenticator=bell).connect(sasl=Plain("carol", "\a")).engine.opened
    assert bell.scram_keys("SCRAM-SHA-256", "carol") is None


@pytest.mark.spec("2.4.5")
def test_a_silent_client_is_disconnected_and_its_messages_return() -> None:
    net = Network(idle_time_out=60)
    net.connect().sender("q").send(b"a")
    client = net.connect()
    client.receiver("q", credit=1)
    client.silent = True
    net.advance(59)
    assert net.queue("q").acquired == 1
    net.advance(15)
    assert client.hung_up
    assert net.queue("q").acquired == 0
    assert net.connect().receiver("q", credit=1).bodies() == [b"a"]


@pytest.mark.spec("2.4.5")
def test_both_sides_keep_an_idle_connection_alive() -> None:
    net = Network(idle_time_out=60)
    client = net.connect(idle_time_out=10)
    net.advance(3600)
    assert client.engine.opened and not client.hung_up


def test_a_peer_that_never_opens_is_disconnected() -> None:
    net = Network()
    client = Client(net)
    client.silent = True
    net.advance(11)
    assert client.hung_up


def test_a_close_the_client_does_not_answer_ends_in_time(net: Network) -> None:
    client = net.connect()
    client.silent = True
    # However long ago it was heard of.
    net.now += 100
    client.handler.close(FORCED, net.now)
    net.advance(9)
    assert not client.hung_up
    net.advance(2)
    assert client.hung_up


def test_a_violation_the_client_does_not_follow_up_ends_in_time(net: Network) -> None:
    client = net.connect()
    client.silent = True
    client.handler.receive_data(b"\0\0\0\x01\x02\0\0\0", net.now)
    assert client.handler.deadline_moved
    assert not client.hung_up
    net.advance(11)
    assert client.hung_up


def test_the_broker_closes_with_a_reason(net: Network) -> None:
    clients = [net.connect() for _ in range(3)]
    receivers = [client.receiver("q", credit=1) for client in clients]
    sender = net.connect().sender("q")
    sender.send(b"a", b"b", b"c")
    assert all(receiver.deliveries for receiver in receivers)
    for client in clients:
        client.handler.close(FORCED, net.now)
    net.run()
    for client in clients:
        assert client.closed_with == FORCED
        assert client.hung_up
    assert (net.queue("q").available, net.queue("q").acquired) == (3, 0)


def test_one_clients_violation_leaves_the_others_alone(net: Network) -> None:
    good, bad = net.connect(), net.connect()
    sender = good.sender("q")
    bad.receiver("q", credit=10)
    sender.send(b"a")
    bad.handler.receive_data(b"\xff" * 64, net.now)
    net.run()
    assert bad.closed_with is not None
    assert bad.closed_with.condition == "amqp:connection:framing-error"
    assert isinstance(bad.handler.connection.failure, RemoteProtocolError)
    receiver = good.receiver("q", credit=10)
    assert receiver.bodies() == [b"a"]
    receiver.settle(Accepted())


def test_a_stolen_link_gives_back_what_it_held(net: Network) -> None:
    """A client that attaches a name again takes the link over (AMQP 1.0 §2.6.1)."""
    client = net.connect()
    client.sender("q").send(b"a")
    first = client.receiver("q", credit=10, name="twice")
    assert first.bodies() == [b"a"]
    # The client's engine would not attach the name twice; make it forget.
    client.session.links.clear()
    client.engine.channels.links.clear()
    second = client.receiver("q", credit=10, name="twice")
    assert second.bodies() == [b"a"]
    assert len(net.queue("q").consumers) == 1


@pytest.mark.parametrize("address", ["q", "$refused"])
def test_a_client_without_handles_for_us_loses_the_session(net: Network, address: str) -> None:
    client = net.connect(handle_max=0)
    client.receiver("q")
    client.session._remote_handle_max = 100
    client.receiver(address, name="second")
    assert not client.session.mapped
    assert client.engine.opened
    assert net.queue("q").consumers == {}


def test_dead_connections_leave_nothing_behind(net: Network) -> None:
    for how in ("close", "lose"):
        client = net.connect()
        client.sender("q").send(b"a")
        client.receiver("q", credit=5)
        client.receiver("q", credit=5, mode="copy")
        getattr(client, how)()
    assert not net.broker.handlers
    assert net.queue("q").consumers == {}
    assert net.queue("q").producers == {}
    assert not net.broker.output.dirty


def test_several_sessions_are_independent(net: Network) -> None:
    client = net.connect()
    one, two = client.begin(), client.begin()
    sender = client.sender("q", session=one)
    receiver = client.receiver("q", credit=10, session=two)
    sender.send(b"a")
    one.end()
    net.run()
    assert receiver.bodies() == [b"a"]
    receiver.settle(Accepted())
    assert client.sender("q").link.credit > 0
