"""Brokers with rules, and what becomes of those who ask for what they may not."""

from __future__ import annotations

import tomllib

from ferrymq.engine.delivery import OutgoingDelivery
from ferrymq.engine.sasl import Plain
from ferrymq_broker.config.model import Config
from ferrymq_types.messaging import Data, Properties, Rejected
from tests.broker.harness import Client, Endpoint, Network, Sender

UNAUTHORIZED = "amqp:unauthorized-access"


def guarded(text: str) -> Network:
    """A broker with this configuration."""
    net = Network()
    tables = tomllib.loads(text)
    # Rules about users are for brokers that have some; here everybody is believed.
    tables.setdefault("security", {"users": {"somebody": "a password"}})
    net.restart(Config.model_validate(tables))
    return net


def user(net: Network, name: str, **options: object) -> Client:
    """A client of somebody who has proved his name."""
    return net.connect(sasl=Plain(name, "any password"), **options)


def send_to(sender: Sender, to: str, body: bytes = b"x") -> OutgoingDelivery:
    """Send a message that names its address itself."""
    return sender.send_sections(Properties(to=to), Data(value=body))


def lacks(endpoint: Endpoint) -> str:
    """What somebody lacks whose link was refused."""
    assert endpoint.detached and endpoint.error is not None
    assert endpoint.error.condition == UNAUTHORIZED, endpoint.error
    assert endpoint.error.info is None
    text = str(endpoint.error.description)
    assert text.endswith(" is not allowed to you")
    return text.removesuffix(" is not allowed to you")


def is_open(endpoint: Endpoint) -> bool:
    """Whether a link was accepted, and is still there."""
    return endpoint.attached and not endpoint.detached


def condition(endpoint: Endpoint) -> str:
    """Why a link was refused."""
    assert endpoint.detached and endpoint.error is not None
    return endpoint.error.condition


def rejected(delivery: OutgoingDelivery) -> str:
    """Why a message was rejected."""
    state = delivery.remote_state
    assert isinstance(state, Rejected) and state.error is not None, state
    return state.error.condition
