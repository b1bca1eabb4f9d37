"""The sans-IO AMQP 1.0 engine: protocol without sockets, clocks or tasks.

The modules follow the specification: `frames` and `input` (§2.3), `connection`, `opening`,
`channels` and `timers` (§2.4), `session` with its halves `incoming` and `outgoing` (§2.5),
`attachment` and `link` with its roles `sender` and `receiver` (§2.6), `delivery` and `dispositions`
(§2.6.12), `resumption` and `positions` (§2.6.13, §3.4.6), `layers` (§2.2, §5.1), `sasl`, `scram`,
`oauth` and `sasl_exchange` (§5.3). `states` holds the state tables, `events` the events that the
engine reports to its user. Start reading at `connection`.
"""

from __future__ import annotations

from ferrymq.engine.connection import Connection
from ferrymq.engine.delivery import IncomingDelivery, OutgoingDelivery
from ferrymq.engine.link import Link
from ferrymq.engine.oauth import OAuthBearer
from ferrymq.engine.receiver import ReceiverLink
from ferrymq.engine.sasl import Anonymous, External, Plain, SaslMechanism
from ferrymq.engine.scram import Scram
from ferrymq.engine.sender import SenderLink
from ferrymq.engine.session import Session
from ferrymq.engine.settings import ConnectionSettings

__all__ = [
    "Anonymous",
    "Connection",
    "ConnectionSettings",
    "External",
    "IncomingDelivery",
    "Link",
    "OAuthBearer",
    "OutgoingDelivery",
    "Plain",
    "ReceiverLink",
    "SaslMechanism",
    "Scram",
    "SenderLink",
    "Session",
]
