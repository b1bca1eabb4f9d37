"""A broker with every kind of node, in memory, and a client that says anything after it has logged
in and begun a session.

Nothing may raise but what answers the client; a second client is served before and after; and when
the connection is gone nothing of it is left.
"""

from __future__ import annotations

from random import Random

from ferrymq.engine.settings import ConnectionSettings
from ferrymq_broker.connections.handler import ConnectionHandler
from ferrymq_broker.management.setup import install
from ferrymq_broker.values.policy import QueuePolicy
from ferrymq_servicebus.hub_tables import HUB_TABLES
from ferrymq_types.transport import Open
from tests.broker.harness import Network
from tests.fuzz.pool import AMQP
from tests.fuzz.targets._wire import mutate_play, pieces
from tests.support.grammar import check_grammar
from tests.support.scenes import peer_begin
from tests.support.script import AMQP_HEADER, encoded, on

_BEGUN = AMQP_HEADER + encoded(Open(container_id="peer")) + encoded(on(1, peer_begin()))


def one(data: bytes) -> None:
    """Play the stream to a broker of its own."""
    if len(data) < 2:
        return
    net = Network(max_nodes=50, max_message_size=100_000, idle_time_out=60.0)
    install(net.space, net.broker, dialects=HUB_TABLES.dialects)
    net.declare("queue", QueuePolicy())
    net.declare("other", QueuePolicy())
    other = net.connect()
    sender = other.sender("other")
    sender.send(b"before")
    output: list[bytes] = []
    over: list[bool] = []
    handler = ConnectionHandler(
        net.broker,
        ConnectionSettings(
            container_id="broker",
            initiator=False,
            sasl_mechanisms=net.authenticator.mechanisms(net.transport),
            handle_max=15,
            incoming_window=64,
            idle_time_out=60.0,
        ),
        net.authenticator,
        net.transport,
        output.append,
        lambda: over.append(True),
        net.now,
        100_000,
        20,
    )
    handler.receive_data(_BEGUN, net.now)
    for part, passed in pieces(data):
        now = net.now + passed
        if over:
            break
        handler.receive_data(part, now)
        net.run()
        due = handler.next_deadline()
        if due is not None and due <= now:
            handler.handle_timeout(now)
    check_grammar(b"".join(output))
    handler.receive_eof(net.now + 100)
    net.run()
    assert handler not in net.broker.handlers
    # A client that may do everything may have taken the queue away.
    if sender.link.usable and "other" in net.space.nodes:
        sender.send(b"after")
        receiver = other.receiver("other", credit=100)
        assert receiver.bodies()[-1:] == [b"after"]


def seeds() -> list[bytes]:
    """One frame each, and senders and receivers of every node with what goes over them."""
    attaches = [frame for frame in AMQP if b"\0\x53\x12" in frame[:12]]
    rest = [frame for frame in AMQP if frame[6:8] == b"\0\1" and frame not in attaches]
    found = [b"\0\0" + frame for frame in AMQP]
    found += [b"\0\0" + a + b"".join(rest[i : i + 3]) for i, a in enumerate(attaches)]
    found += [b"\1\0" + a + b for a in attaches for b in rest[2:8]]
    return found


def mutate(random: Random, data: bytes) -> bytes:
    """Other frames."""
    return mutate_play(random, data, AMQP)
