"""A scripted peer that answers as RabbitMQ does: what it does not like ends the session.

Its texts are those of RabbitMQ 4.0.5, or of 3.10.8 with `old`. Every queue exists, except those
whose names begin with ``no``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ferrymq.engine import events
from ferrymq.engine.receiver import ReceiverLink
from ferrymq.engine.sender import SenderLink
from ferrymq.message import Message
from ferrymq_types.messaging import Modified, Source, Target
from ferrymq_types.transactions import Coordinator
from ferrymq_types.transport import Error
from tests.client.peer import Peer, PeerConnection


class RabbitPeer(Peer):
    """RabbitMQ. `alive` are the addresses of its links, with the channel of each."""

    def __init__(self, old: bool = False, **settings: Any) -> None:
        version, channel_max = ("3.10.8", 2047) if old else ("4.0.5", 63)
        super().__init__(
            **{
                "container_id": "rabbit@host",
                "properties": {"product": "RabbitMQ", "version": version},
                "offered_capabilities": [] if old else ["LINK_PAIR_V1_0", "ANONYMOUS-RELAY"],
                "channel_max": channel_max,
                **settings,
            }
        )
        self.old = old
        # Errors of sessions, by the address whose attach they answer.
        self.refusals: dict[str | None, Error] = {}
        # How many attaches came for each address.
        self.attaches: dict[str | None, int] = {}
        self.on[events.AttachReceived] = self._on_attach
        self.on[events.DeliveryReceived] = self._on_delivery
        self.on[events.OutcomeReceived] = self._on_outcome
        self.on[events.DetachReceived] = self._on_detach

    def addresses(self) -> dict[str | None, int]:
        """The addresses of the links that are attached, with their channels."""
        found: dict[str | None, int] = {}
        for link in self.connection.links.values():
            if link.usable:
                found[_address(link)] = int(link.session.remote_channel)
        return found

    def end(self, address: str, condition: str, description: str | None = None) -> None:
        """End the session of a link."""
        for link in self.connection.links.values():
            if link.usable and _address(link) == address:
                link.session.end(Error(condition=condition, description=description))
                self.connection.process()
                return
        raise AssertionError(f"no link to {address}")

    def _on_attach(self, connection: PeerConnection, event: events.AttachReceived) -> None:
        link = event.link
        assert isinstance(link, SenderLink | ReceiverLink)
        address = _address(link)
        self.attaches[address] = self.attaches.get(address, 0) + 1
        error = self._refusal(link, address)
        if error is not None:
            link.session.end(error)
            return
        self.attach(connection, event)

    def _refusal(self, link: SenderLink | ReceiverLink, address: str | None) -> Error | None:
        remote = link.remote_attach
        assert remote is not None
        if address in self.refusals:
            return self.refusals[address]
        if isinstance(remote.target, Coordinator):
            return _not_implemented("Transactions not supported")
        if isinstance(remote.source, Source) and remote.source.dynamic:
            return _not_implemented("Dynamic sources not supported")
        if isinstance(remote.target, Target) and remote.target.dynamic:
            return _not_implemented("Dynamic targets not supported")
        if remote.unsettled:
            return _not_implemented("Link recovery not supported")
        name = (address or "").rpartition("/")[2]
        if name.startswith("no"):
            text = f"no queue '{name}' in vhost '/'"
            return Error(
                condition="amqp:not-found", description=f"NOT_FOUND - {text}" if self.old else text
            )
        return None

    def _on_delivery(self, connection: PeerConnection, event: events.DeliveryReceived) -> None:
        message = Message.decode(event.delivery.payload)
        properties = message.properties
        user = None if properties is None else properties.user_id
        if user is not None and user != b"guest":
            text = f"user_id property set to '{user.decode()}' but authenticated user was 'guest'"
            event.link.session.end(Error(condition="amqp:unauthorized-access", description=text))
            return
        self.default(connection, event)

    def _on_outcome(self, connection: PeerConnection, event: events.OutcomeReceived) -> None:
        state = event.delivery.remote_state
        if self.old and isinstance(state, Modified):
            text = "Unrecognised state: {'v1_0.modified',true,undefined,undefined}"
            session = event.delivery.link.session
            session.end(Error(condition="amqp:invalid-field", description=text))
            return
        self.default(connection, event)

    def _on_detach(self, connection: PeerConnection, event: events.DetachReceived) -> None:
        # 3.10 answers a close by a detach.
        event.link.detach(closed=event.closed and not self.old)


def _address(link: SenderLink | ReceiverLink) -> str | None:
    remote = link.remote_attach
    assert remote is not None
    terminus = remote.source if isinstance(link, SenderLink) else remote.target
    return terminus.address if isinstance(terminus, Source | Target) else None


def _not_implemented(description: str) -> Error:
    return Error(condition="amqp:not-implemented", description=description)


async def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - no event says so
            await asyncio.sleep(0.001)
