"""Clients that remember what is unsettled, and resume it: an engine, and a map that outlives it."""

from __future__ import annotations

from typing import Any

from ferrymq.engine.delivery import IncomingDelivery, OutgoingDelivery
from ferrymq.engine.resumption import Resolution, is_outcome
from ferrymq.engine.sender import SenderLink
from ferrymq_types.messaging import (
    Accepted,
    Data,
    Header,
    Source,
    Target,
    TerminusDurability,
    TerminusExpiryPolicy,
)
from ferrymq_types.transactions import TransactionalState
from ferrymq_types.transport import ReceiverSettleMode
from ferrymq_types.unions import DeliveryState, Outcome
from tests.broker.harness import Client, Network, Receiver, Sender, encode, text
from tests.broker.stores import ManualStore

FIRST = ReceiverSettleMode.FIRST
SECOND = ReceiverSettleMode.SECOND
STATE = TerminusDurability.UNSETTLED_STATE


def target(
    address: str | None = "q",
    durable: TerminusDurability = STATE,
    policy: str = "never",
    timeout: int = 0,
) -> Target:
    """One that outlives its link."""
    return Target(
        address=address,
        durable=durable,
        expiry_policy=TerminusExpiryPolicy(policy),
        timeout=timeout,
    )


def source(
    address: str | None = "q",
    durable: TerminusDurability = STATE,
    policy: str = "never",
    timeout: int = 0,
    default_outcome: Outcome | None = None,
) -> Source:
    """One that outlives its link."""
    return Source(
        address=address,
        durable=durable,
        expiry_policy=TerminusExpiryPolicy(policy),
        timeout=timeout,
        default_outcome=default_outcome,
    )


def message(body: bytes) -> bytes:
    """A durable message."""
    return encode(Header(durable=True), Data(value=body))


class Lasting:
    """A link that is attached again and again, under the same name."""

    def __init__(
        self,
        net: Network,
        mode: ReceiverSettleMode = SECOND,
        *,
        container: str = "worker",
        name: str = "link",
        max_frame_size: int = 65536,
        properties: dict[str, object] | None = None,
    ) -> None:
        self.net = net
        self.mode = mode
        self.container = container
        self.name = name
        self.max_frame_size = max_frame_size
        self.properties = properties

    def connect(self) -> Client:
        """A new connection, nothing attached."""
        self.client = self.net.connect(
            container_id=self.container, max_frame_size=self.max_frame_size
        )
        return self.client

    def restart(self, *, broker: bool) -> None:
        """The connection is lost, with the broker if there is one to come back."""
        if broker:
            self.net.restart()
        else:
            self.client.lose()


class Publisher(Lasting):
    """Sends each message once, whatever happens to its link.

    `outcomes` has those it has been told, by tag; `unsettled` what it has not settled yet, in the
    order of sending.
    """

    def __init__(
        self,
        net: Network,
        mode: ReceiverSettleMode = SECOND,
        *,
        to: Target | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(net, mode, **settings)
        self.target: Target | None = target() if to is None else to
        self.unsettled: dict[bytes, bytes] = {}
        self.states: dict[bytes, DeliveryState | None] = {}
        self.outcomes: dict[bytes, DeliveryState] = {}
        self.live: dict[bytes, OutgoingDelivery] = {}
        self.attached = False
        self.resolutions: dict[bytes, Resolution] = {}

    def attach(self, *, anew: bool = False) -> Sender:
        """Attach the link, with what is unsettled unless it begins `anew`."""
        link = SenderLink(self.client.session, self.name, True)
        earlier: dict[bytes, OutgoingDelivery] = {}
        for tag in self.unsettled:
            delivery = OutgoingDelivery(link, tag, False)
            delivery.state = self.states.get(tag)
            earlier[tag] = delivery
        self.link = self.client.session.attach_sender(
            self.name,
            target=self.target,
            source=Source(),
            rcv_settle_mode=self.mode,
            properties=self.properties,
            unsettled=None if anew else earlier,
        )
        self.sender = Sender(self.client, self.link)
        self.client.links[self.link] = self.sender
        self.live = {}
        self.net.run()
        return self.sender

    def resume(self) -> dict[bytes, Resolution]:
        """Do with each delivery what the maps call for, and tell what that was."""
        resumption = self.link.resumption
        assert resumption is not None
        done: dict[bytes, Resolution] = {}
        for tag, delivery in list(resumption.unsettled.items()):
            payload = self.unsettled[tag]
            if resumption.resolution(delivery) is Resolution.RESEND and not resumption.whole:
                self.link.withdraw(delivery)
                done[tag] = Resolution.RESEND
                continue
            done[tag] = self.link.resume(delivery, payload)
            if done[tag] in (Resolution.SETTLE, Resolution.FORGET, Resolution.ABORT):
                if is_outcome(delivery.state) and delivery.state is not None:
                    self.outcomes[tag] = delivery.state
                del self.unsettled[tag]
            else:
                self.live[tag] = delivery
        self.net.run()
        self.resolutions = done
        return done

    def send(self, tag: bytes, body: bytes | None = None) -> OutgoingDelivery:
        """Send a message under a tag, its body the same unless given."""
        payload = message(tag if body is None else body)
        self.unsettled[tag] = payload
        self.states.pop(tag, None)
        delivery = self.link.send(payload, tag=tag)
        self.live[tag] = delivery
        self.net.run()
        return delivery

    def learn(self, *, settle: bool = True) -> None:
        """Take note of the outcomes that have come, and settle."""
        for tag, delivery in list(self.live.items()):
            state = delivery.remote_state
            if not is_outcome(state) or state is None:
                continue
            self.states[tag] = state
            self.outcomes[tag] = state
            if settle:
                delivery.settle()
                self.unsettled.pop(tag, None)
                del self.live[tag]
        self.net.run()


class Consumer(Lasting):
    """Takes each message once, whatever happens to its link.

    `unsettled` is what it has of deliveries that are not settled, by tag, `bodies` what it has
    taken, in order.
    """

    def __init__(
        self,
        net: Network,
        mode: ReceiverSettleMode = SECOND,
        *,
        of: Source | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(net, mode, **settings)
        self.source: Source | None = source() if of is None else of
        self.unsettled: dict[bytes, IncomingDelivery] = {}

    def attach(self, credit: int = 100, *, anew: bool = False) -> Receiver:
        """Attach the link, with what is unsettled unless it begins `anew`."""
        for delivery in self.unsettled.values():
            if isinstance(delivery.state, TransactionalState):
                # The transaction is over.
                delivery.state = None
        self.link = self.client.session.attach_receiver(
            self.name,
            source=self.source,
            target=Target(),
            rcv_settle_mode=self.mode,
            properties=self.properties,
            unsettled=None if anew else dict(self.unsettled),
        )
        self.receiver = Receiver(self.client, self.link)
        self.client.links[self.link] = self.receiver
        if anew:
            self.unsettled = {}
        self.net.run()
        self._compare()
        if credit:
            self.receiver.credit(credit)
            self.note()
        return self.receiver

    def _compare(self) -> None:
        """What only we know of is settled."""
        resumption = self.link.resumption
        if resumption is not None and self.link.remote_attach is not None:
            if not self.link.remote_attach.incomplete_unsettled:
                for tag in list(self.unsettled):
                    if tag not in resumption.unsettled and not self.unsettled[tag].resumed:
                        del self.unsettled[tag]

    def note(self) -> None:
        """Take note of what has come and of what has been settled."""
        for delivery in self.receiver.take():
            if not delivery.remote_settled:
                self.unsettled[delivery.tag] = delivery
        for tag, delivery in list(self.unsettled.items()):
            if delivery.settled:
                del self.unsettled[tag]

    def bodies(self) -> list[bytes]:
        """Of what is unsettled, in order."""
        return [text(delivery.data()) for delivery in self.unsettled.values()]

    def give(self, state: DeliveryState, *tags: bytes) -> None:
        """Give deliveries an outcome; in mode second they are settled when the broker settles."""
        for tag in tags or tuple(self.unsettled):
            self.unsettled[tag].settle(state)
        self.net.run()
        self.note()


def stored() -> Network:
    """A broker with a store, and a queue."""
    net = Network(store=ManualStore())
    net.declare("q")
    net.run()
    return net


def filled(net: Network, *bodies: bytes) -> None:
    """Durable messages in the queue."""
    sender = net.connect().sender("q")
    for body in bodies:
        sender.send_encoded(message(body))


def drained(net: Network, address: str = "q") -> list[bytes]:
    """What is available in a queue, taken out of it."""
    receiver = net.connect().receiver(address, credit=1000)
    bodies = receiver.bodies()
    receiver.settle(Accepted())
    receiver.close()
    return bodies
