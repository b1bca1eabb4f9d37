"""A broker in memory that takes tokens, and clients that bring some."""

from __future__ import annotations

import itertools
from typing import Any
from uuid import UUID

from ferrymq.engine.oauth import OAUTHBEARER, OAuthBearer
from ferrymq_broker.access.identity import UserIdentity
from ferrymq_broker.clock import Clock
from ferrymq_broker.config.model import Config
from ferrymq_broker.connections.authentication import Authenticator, ClientTransport, Login
from ferrymq_broker.security.cbs import install_tokens
from ferrymq_broker.security.tokens import TokenVerifier, make_verifier
from ferrymq_codec.scalars import Timestamp
from ferrymq_servicebus.hub_tables import HUB_TABLES
from ferrymq_types.messaging import Accepted, AmqpValue, ApplicationProperties, Data, Properties
from ferrymq_types.unions import Section
from tests.broker.harness import EPOCH, Client, Network, Receiver, Sender
from tests.broker.management.asker import Answer, read_answer
from tests.broker.tokens.makers import NOW, make_sas

KEY = "the-secret-of-the-shop"
SAS, JWT = "servicebus.windows.net:sastoken", "jwt"
QUEUES = ["q1", "q2", "q3", "q4", "q5", "q9", "q10", "q", "Q1", "x", "x1", "own.alice", "own.bob"]
UNAUTHORIZED = "amqp:unauthorized-access"

_ids = itertools.count(1)


class NetworkClock(Clock):
    """The clock of a broker in memory, whose time of the day begins at `NOW`."""

    def __init__(self, net: Network) -> None:
        self._net = net

    def now(self) -> float:
        return self._net.now

    def epoch(self) -> float:
        return EPOCH


class Bearers(Authenticator):
    """Lets in who has a token, and who says nothing."""

    def __init__(self, verifier: TokenVerifier) -> None:
        self._verifier = verifier

    def mechanisms(self, transport: ClientTransport) -> list[str]:
        return [OAUTHBEARER, "ANONYMOUS"]

    def is_required(self, transport: ClientTransport) -> bool:
        return False

    def authenticate(self, login: Login) -> None:
        if login.token is None:
            login.decide(UserIdentity(None, mechanism=login.mechanism))
        else:
            login.decide(self._verifier.check_jwt(login.token, login.mechanism))


def taking(tables: dict[str, Any]) -> Network:
    """A broker with this configuration. It is `NOW`."""
    net = Network()
    net.now = NOW - EPOCH
    # In all virtual hosts; nobody needs the right to make one.
    queues = [{"name": name} for name in QUEUES]
    for table in (tables, *tables.get("virtual-host", [])):
        table.setdefault("queue", queues)
    config = Config.model_validate(tables)
    net.restart(config)
    verifier = make_verifier(config.security, NetworkClock(net))
    assert verifier is not None
    install_tokens(config.security, net.broker, verifier, HUB_TABLES.signature_types)
    net.authenticator = Bearers(verifier)
    return net


def shop(**key: object) -> Network:
    """A broker with one shared access key, which may send and receive."""
    table = {"name": "shop", "primary": KEY, "may": ["send", "receive"], **key}
    return taking({"security": {"shared-access-key": [table]}})


class Bearer:
    """A client with links to ``$cbs``."""

    def __init__(
        self,
        net: Network,
        *,
        client: Client | None = None,
        reply_to: str | None = None,
        login: str | None = None,
    ) -> None:
        self.net = net
        if client is None:
            client = net.connect(sasl=None if login is None else OAuthBearer(login))
        self.client = client
        self.reply_to = reply_to
        self.receiver: Receiver = client.receiver("$cbs", credit=1000)
        self.sender: Sender = client.sender("$cbs")

    def ask(
        self,
        *body: Section,
        message_id: str | int | bytes | UUID | None = None,
        **properties: object,
    ) -> Answer:
        """One request, and its answer."""
        id = f"request-{next(_ids)}" if message_id is None else message_id
        self.sender.send_sections(
            Properties(message_id=id, reply_to=self.reply_to),
            ApplicationProperties(dict(properties)),
            *body,
        )
        (delivery,) = self.receiver.deliveries
        self.receiver.settle(Accepted())
        answer = read_answer(delivery.payload)
        assert answer.about.correlation_id == id
        assert type(answer.about.correlation_id) is type(id)
        assert answer.properties["status-code"] == answer.status
        assert answer.properties["status-description"] == answer.description
        return answer

    def put(
        self,
        token: str,
        name: object = "sb://localhost/q1",
        kind: object = SAS,
        expiration: int | None = None,
    ) -> int:
        """Put a token; the status."""
        properties: dict[str, object] = {"operation": "put-token", "type": kind, "name": name}
        if expiration is not None:
            properties["expiration"] = Timestamp(expiration * 1000)
        return self.ask(AmqpValue(token), **properties).status

    def put_for(self, name: str, seconds: int = 3600) -> None:
        """Put a good token for an address, which is good for so long."""
        expires = self.net.wall // 1000 + seconds
        assert self.put(make_sas(name, KEY, expires=expires), name) == 202

    def may_send(self, address: str) -> bool:
        """Whether a new link to an address is accepted."""
        sender = self.client.sender(address)
        if sender.attached and not sender.detached:
            sender.close()
            return True
        assert sender.error is not None and sender.error.condition == UNAUTHORIZED, sender.error
        return False


__all__ = ["Bearer", "Bearers", "Data", "shop", "taking"]
