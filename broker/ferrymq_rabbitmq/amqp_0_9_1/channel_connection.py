"""Connection of a client of AMQP 0-9-1: events of the engine become calls of its channels.

It is to AMQP 0-9-1 what `ferrymq_broker/connections/handler.py` is to AMQP 1.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.connections.client_handler import ClientHandler
from ferrymq_broker.connections.deferred_events import DeferredEvents
from ferrymq_broker.connections.link_names import LinkHolder
from ferrymq_broker.connections.message_rate import MessageRate, MessageTraffic
from ferrymq_broker.event_log import log
from ferrymq_broker.nodes.node import Producer
from ferrymq_broker.slices import CONNECTION, LOST_LINK
from ferrymq_rabbitmq.amqp_0_9_1.channel import Channel
from ferrymq_rabbitmq.amqp_0_9_1.channel_login import ChannelLogin, offered_mechanisms
from ferrymq_rabbitmq.amqp_0_9_1.channel_output import ChannelOutput
from ferrymq_rabbitmq.amqp_0_9_1.engine.engine_events import (
    ChannelClosed,
    ChannelOpened,
    ClosedByPeer,
    ConnectionEnded,
    ContentReceived,
    EngineEvent,
    HostOpened,
    LoginContinued,
    LoginStarted,
    MethodReceived,
    SecretUpdated,
)
from ferrymq_rabbitmq.amqp_0_9_1.engine.server_connection import ServerConnection
from ferrymq_rabbitmq.amqp_0_9_1.engine.server_settings import ServerSettings
from ferrymq_rabbitmq.amqp_0_9_1.faults import ChannelFault, ConnectionFault
from ferrymq_rabbitmq.amqp_0_9_1.shown_channels import ShownChannel, ShownConsumer
from ferrymq_rabbitmq.amqp_0_9_1.traced_channel import TracedChannel
from ferrymq_rabbitmq.personality import RabbitmqPersonality
from ferrymq_types.transport import Error
from ferrymq_types_0_9_1.constants import (
    ACCESS_REFUSED,
    CONNECTION_FORCED,
    INTERNAL_ERROR,
    RESOURCE_ERROR,
)

if TYPE_CHECKING:
    from ferrymq_broker.broker import Broker
    from ferrymq_broker.connections.client_login import ClientLogin
    from ferrymq_broker.connections.shown_links import ShownLink, ShownSession
    from ferrymq_broker.server.new_connection import NewConnection
    from ferrymq_codec_0_9_1.method import Method
    from ferrymq_rabbitmq.management.host_requests import HostRequests

# The first bytes of a connection (AMQP 0-9-1 §4.2.2).
PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"
# Seconds between heartbeats that are offered, if the broker has no time-out of its own.
_HEARTBEAT: Final = 60
# What the deletion of a queue costs, in units of slices.
QUEUE: Final = 60
_NO_EVENTS: Final[list[EngineEvent]] = []
_CODES: Final = {
    "amqp:unauthorized-access": ACCESS_REFUSED,
    "amqp:resource-limit-exceeded": RESOURCE_ERROR,
    "amqp:internal-error": INTERNAL_ERROR,
}


@final
class ChannelHolder(LinkHolder):
    """The channels of a connection, as alarms and changed rights see them."""

    __slots__ = ("_connection",)

    def __init__(self, connection: ChannelConnection) -> None:
        super().__init__(connection.client)
        # None when the connection is over, so that it is freed at once.
        self._connection: ChannelConnection | None = connection

    def forget_connection(self) -> None:
        """Drop the reference to the connection."""
        self._connection = None

    def withdraw_credit(self) -> i64:
        """Stop reading from a client that publishes."""
        if self._connection is not None:
            self._connection.hold_publisher()
        return 1

    def reauthorize(self) -> int:
        """Cancel the consumers that the client may not have any more; return how many."""
        cancelled = 0
        if self._connection is not None:
            for channel in self._connection.channels.values():
                cancelled += channel.reauthorize()
        return cancelled


@final
class ConnectionProducer(Producer):
    """A connection that publishes, as it waits for the end of an alarm."""

    __slots__ = ("_connection",)

    def __init__(self, connection: ChannelConnection) -> None:
        # None when the connection is over, so that it is freed at once.
        self._connection: ChannelConnection | None = connection

    def forget_connection(self) -> None:
        """Drop the reference to the connection."""
        self._connection = None

    def supply(self) -> None:
        """Read from the client again."""
        if self._connection is not None:
            self._connection.release_publisher()


@final
class ChannelConnection(ClientHandler):
    """The broker's side of one connection of AMQP 0-9-1.

    `channels` are by their numbers. `answered` is whether the client is told of something in this
    pass, which waits for the disk if anything has changed. `outstanding` is how many deliveries of
    all channels have no outcome, `published` how many messages the client has published.
    """

    __slots__ = (
        "engine",
        "channels",
        "answered",
        "outstanding",
        "_login",
        "_holder",
        "_producer",
        "published",
        "_counted",
        "_published_rate",
        "_sent_before",
        "_is_held",
        "_events",
        "_at",
        "_remainder",
        "_eof",
        "_eof_at",
    )

    # Attributes of `ClientHandler` that the methods assign: their types for type checkers.
    deadline_moved: bool

    def __init__(self, new: NewConnection) -> None:
        broker = new.broker
        limits = new.limits
        client = new.client
        authenticator = new.authenticator
        settings = ServerSettings(
            properties=_properties(broker),
            mechanisms=offered_mechanisms(authenticator.mechanisms(client.transport)),
            frame_max=limits.max_frame_size,
            channel_max=limits.channel_max,
            heartbeat=int(limits.idle_time_out) or _HEARTBEAT,
            handshake_timeout=limits.handshake_timeout,
            close_timeout=limits.close_timeout,
            max_message_size=limits.max_message_size,
            max_unfinished=limits.unfinished_bytes(),
            unfinished=broker.unfinished,
        )
        engine = ServerConnection(settings, new.now)
        output = ChannelOutput(engine, broker, new.write, new.hang_up)
        super().__init__(broker, client, output, authenticator)
        self.engine: ServerConnection = engine
        self.channels: dict[int, Channel] = {}
        self.answered: bool = False
        self.outstanding: i64 = 0
        self._login = ChannelLogin(broker, client, output, authenticator, engine)
        self._holder = ChannelHolder(self)
        self._producer = ConnectionProducer(self)
        self.published: i64 = 0
        # How many of these count for the rate limits already.
        self._counted: i64 = 0
        self._published_rate = MessageRate(broker.agenda.now)
        # The deliveries on channels that have ended.
        self._sent_before: i64 = 0
        self._is_held = False
        self._events: list[EngineEvent] = _NO_EVENTS
        # The position of the next event; the task that continues with the events in another slice.
        self._at: i64 = 0
        self._remainder = DeferredEvents(broker.agenda)
        # Whether the end of the transport is still to be processed, and when that was.
        self._eof = False
        self._eof_at = 0.0

    # -- calls from the server -----------------------------------------------------------

    def receive_data(self, data: bytes, now: float) -> None:
        """Process bytes that have arrived: one whole pass."""
        broker = self.broker
        broker.begin_pass(now)
        broker.counters.bytes_received += len(data)
        self.engine.receive_data(data, now)
        self.process()
        throttle = self.client.throttle
        if throttle is not None:
            throttle.count_input(len(data), self.published - self._counted)
            self._counted = self.published
        if not self.engine.is_established():
            # On an open connection input makes no deadline earlier.
            self.deadline_moved = True
        self.output.touch()
        broker.finish_pass()

    def receive_eof(self, now: float) -> None:
        """Process the end of the transport, however it has ended."""
        self.broker.begin_pass(now)
        slices = self.broker.agenda.slices
        if slices.is_spent():
            # Many connections have ended at once. This one gets no more input until its turn comes.
            self._eof = True
            self._eof_at = now
            self.output.pause()
            self._remainder.wait(self)
        else:
            self._end_input(now)
            self.output.touch()
        self.broker.finish_pass()

    def _end_input(self, now: float) -> None:
        self.broker.agenda.slices.spend(CONNECTION + len(self.channels) * LOST_LINK)
        self.engine.receive_eof(now)
        self.process()

    def forget_transport(self) -> None:
        """Stop all callbacks: the transport is gone, and its end has been reported."""
        super().forget_transport()
        self._holder.forget_connection()
        self._producer.forget_connection()

    def next_deadline(self) -> float | None:
        """Return when `handle_timeout` must be called, by the clock that gives `now`."""
        self.deadline_moved = False
        return self.engine.next_deadline()

    def handle_timeout(self, now: float) -> None:
        """Do what is due at this time."""
        self.broker.begin_pass(now)
        if self._is_held or self._is_throttled():
            # Nothing is read from the client, so its silence says nothing.
            self.engine.note_input(now)
        self.engine.handle_timeout(now)
        self.process()
        self.output.touch()
        self.output.keep_alive()
        self.broker.finish_pass()

    def close(self, error: Error | None, now: float) -> None:
        """Close the connection from the broker's side; the client has `close_timeout` to answer."""
        self.broker.begin_pass(now)
        condition = "" if error is None or error.condition is None else str(error.condition)
        text = "" if error is None or error.description is None else error.description
        # The client's time to answer begins now.
        self.engine.note_input(now)
        self.engine.close(_CODES.get(condition, CONNECTION_FORCED), text)
        self.deadline_moved = True
        self.process()
        self.output.touch()
        self.broker.finish_pass()

    def last_words(self, error: Error) -> bytes:
        """See `ClientHandler.last_words`."""
        engine = self.engine
        if not self.output.begun:
            return b""
        engine.data_to_send()
        engine.close(CONNECTION_FORCED, error.description or "")
        return engine.data_to_send()

    def holds_messages(self) -> bool:
        """Return whether the client has messages that it has not acknowledged."""
        return any(channel.holds_messages() for channel in self.channels.values())

    def is_behind(self) -> bool:
        """Return whether no more input is read: events are put off, there is an alarm, the client
        has sent too much for its rate limit, or it has not waited for its login."""
        return (
            self._remainder.waits
            or self._is_held
            or self._is_throttled()
            or self.engine.holds_input()
        )

    def _is_throttled(self) -> bool:
        throttle = self.client.throttle
        return throttle is not None and throttle.holds_input()

    def resume_input(self) -> None:
        """See `ConnectionPort.resume_input`."""
        self.engine.note_input(self.broker.clock.now)
        if self.rearm is not None:
            self.rearm()

    def is_lingering(self) -> bool:
        """Return whether the client must have the time to read the close."""
        return self.engine.lingering

    def client_login(self) -> ClientLogin:
        """Return the login of the connection."""
        return self._login

    def holder(self) -> LinkHolder:
        """Return the channels of the connection."""
        return self._holder

    # -- alarms --------------------------------------------------------------------------

    def hold_publisher(self) -> None:
        """Read nothing more from a client that has published, until the alarms are over."""
        # An alarm stops only clients that publish.
        if self.published > 0 and not self._is_held and not self.engine.finished:
            self._is_held = True
            alarms = sorted(self.broker.alarms)
            self.engine.block(f"low on {' and '.join(alarms)}")
            self.broker.credit.wait(self._producer)
            self.output.touch()

    def release_publisher(self) -> None:
        """Read from the client again."""
        if self._is_held:
            self._is_held = False
            self.engine.unblock()
            self.engine.note_input(self.broker.clock.now)
            self.output.touch()
            if self.rearm is not None:
                self.rearm()

    # -- callbacks from its parts --------------------------------------------------------

    def is_finished(self) -> bool:
        """Return whether the connection is over."""
        return self.engine.finished

    def catch_up(self) -> bool:
        """Process events that were put off, and return whether all of them are done."""
        if self._eof:
            self._eof = False
            self._end_input(self._eof_at)
        else:
            self.process()
        self.output.touch()
        if self._at < len(self._events):
            return False
        if self.rearm is not None:
            self.rearm()
        return True

    # -- events --------------------------------------------------------------------------

    def process(self) -> None:
        """Process events, and confirm what was published."""
        changes = self.output.changes
        before = changes.total
        claims = changes.claims
        self.answered = False
        try:
            self._work_off()
            for channel in self.channels.values():
                channel.write_confirms()
        except BaseException:
            # The client is told of everything before the bug.
            self.output.need_latest()
            self._events = _NO_EVENTS
            self._at = 0
            raise
        if self.answered and (changes.total != before or changes.claims != claims):
            # The client is told of changes only when they are on disk.
            self.output.need_latest()

    def _work_off(self) -> None:
        """Process all events that have arrived, as far as the slice allows."""
        engine = self.engine
        slices = self.broker.agenda.slices
        left = slices.left
        while True:
            events = self._events
            at = self._at
            if at >= len(events):
                events = engine.take_events()
                self._at = 0
                at = 0
                self._events = events
                if not events:
                    self._events = _NO_EVENTS
                    return
            if slices.left <= 0 and slices.left < left and slices.is_spent():
                # The work of this client takes long: other clients go first.
                self._remainder.wait(self)
                return
            event = events[at]
            # An event in which a bug has raised is not processed again.
            self._at = at + 1
            if isinstance(event, ContentReceived):
                self._on_content(event)
            elif isinstance(event, MethodReceived):
                self._on_method(event)
            elif not self._on_control_event(event):
                self._at = at
                self._remainder.wait(self)
                return

    def _on_content(self, event: ContentReceived) -> None:
        channel = self.channels.get(event.channel)
        if channel is None or not channel.is_open():
            # The channel, or the connection, was closed for an earlier error.
            return
        self.published += 1
        try:
            channel.on_content(event.method, event.properties, event.body)
        except ChannelFault as fault:
            self._fail_channel(channel, fault, event.method)
        except ConnectionFault as fault:
            self.engine.close(fault.code, fault.text, event.method)
        if self.broker.credit.withheld:
            self.hold_publisher()

    def _new_channel(self, number: int) -> Channel:
        tracer = self.broker.shared.tracer
        if tracer is None:
            return Channel(self, number, self._requests())
        return TracedChannel(self, number, self._requests(), tracer)

    def _on_method(self, event: MethodReceived) -> None:
        channel = self.channels.get(event.channel)
        if channel is None or not channel.is_open():
            return
        try:
            channel.on_method(event.method)
        except ChannelFault as fault:
            self._fail_channel(channel, fault, event.method)
        except ConnectionFault as fault:
            self.engine.close(fault.code, fault.text, event.method)

    def _fail_channel(self, channel: Channel, fault: ChannelFault, method: Method) -> None:
        """Close a channel for a fault; what was published before is confirmed first."""
        channel.write_confirms()
        self.engine.close_channel(channel.number, fault.code, fault.text, method)

    def is_full(self) -> bool:
        """Return whether the client has as many deliveries without an outcome as it may have."""
        return self.outstanding >= self.broker.client_limits.unsettled_total

    def wake_waiting(self) -> None:
        """Wake the consumers of all channels that wait for room."""
        for channel in self.channels.values():
            channel.wake_waiting()

    def _on_control_event(self, event: EngineEvent) -> bool:
        """Process an event that does not come with every message.

        Return false if there is more to do than the present slice allows: call this again then.
        """
        if isinstance(event, ChannelOpened):
            # What follows it in the same read may have ended the connection.
            if event.channel in self.engine.channels:
                self.channels[event.channel] = self._new_channel(event.channel)
        elif isinstance(event, ChannelClosed):
            return self._end_channel(event.channel)
        elif isinstance(event, LoginStarted):
            self._begin_login(event)
        elif isinstance(event, LoginContinued):
            # None of the mechanisms has a second step.
            self.engine.refuse_login("no response was asked for")
        elif isinstance(event, SecretUpdated):
            self._login.check_secret(self, event.secret)
        elif isinstance(event, HostOpened):
            self.deadline_moved = True
            self._login.open(self, self._holder, event.virtual_host)
            if self.moves_to >= 0:
                del self._events[self._at :]
        elif isinstance(event, ClosedByPeer):
            log.info("connection closed", peer=self.client.peer, reason=event.text)
        elif isinstance(event, ConnectionEnded):
            return self._on_ended(event)
        return True

    def _requests(self) -> HostRequests:
        """Return what serves declarations and bindings in the virtual host of the client."""
        personality = self.client.space.personality
        assert isinstance(personality, RabbitmqPersonality)
        assert personality.requests is not None
        return personality.requests

    def _begin_login(self, event: LoginStarted) -> None:
        name = event.client_properties.get("connection_name")
        self.client.name(name if isinstance(name, str) else "")
        self._login.begin(self, event.mechanism, event.response)

    def _end_channel(self, number: int) -> bool:
        """End a channel; return false if there is more to do than the present slice allows."""
        channel = self.channels.get(number)
        if channel is None:
            return True
        if not channel.close():
            return False
        del self.channels[number]
        self._sent_before += channel.last_tag
        return True

    def _on_ended(self, event: ConnectionEnded) -> bool:
        """Remove the connection from the broker, because it is over."""
        lost = event.reason != ""
        # Consumers get nothing more while the channels end, which may take several slices.
        self.output.quiesce()
        for number in list(self.channels):
            if not self._end_channel(number):
                return False
        if not self._end_exclusive_queues():
            return False
        client = self.client
        if lost:
            log.info("connection lost", peer=client.peer, reason=event.reason)
        self.leave()
        self.broker.credit.leave(self._producer, 0)
        self._is_held = False
        self._login.end(event.reason if event.failed_login else "")
        client.space.party_gone(client.id)
        self.output.touch()
        return True

    def _end_exclusive_queues(self) -> bool:
        """Delete the queues that end with their connection; return false if there is more to do
        than the present slice allows."""
        client = self.client
        waiting = client.space.awaiting.get(int(client.id))
        slices = self.broker.agenda.slices
        while waiting:
            if slices.is_spent():
                return False
            slices.spend(QUEUE)
            queue = next(iter(waiting))
            waiting.pop(queue)
            queue.party_gone(client.id)
        return True

    # -- for management --------------------------------------------------------------------

    def describe(self) -> dict[str, object]:
        """Return the attributes of the connection by their public names."""
        engine = self.engine
        return {
            "protocol": "AMQP 0-9-1",
            "container-id": self.client.container_id,
            "channels": len(self.channels),
            "max-frame-size": int(engine.frame_max),
            "channel-max": int(engine.channel_max),
            "idle-time-out": int(engine.heartbeat) * 1000 or None,
            "properties": engine.client_properties,
            "consumers": sum(len(channel.consumers) for channel in self.channels.values()),
        }

    def shown_sessions(self) -> list[ShownSession]:
        """Return the channels by their numbers."""
        return [ShownChannel(self.channels[number]) for number in sorted(self.channels)]

    def shown_links(self) -> list[ShownLink]:
        """Return the consumers of all channels."""
        return [
            ShownConsumer(consumer)
            for number in sorted(self.channels)
            for consumer in self.channels[number].consumers.values()
        ]

    def unsettled(self) -> i64:
        """Return how many deliveries have no outcome."""
        return self.outstanding

    def traffic(self) -> MessageTraffic:
        """Return the messages so far, and their rates."""
        now = self.broker.agenda.now
        traffic = MessageTraffic()
        traffic.received = self.published
        traffic.received_rate = self._published_rate.rate(self.published, now)
        traffic.sent = self._sent_before
        for channel in self.channels.values():
            traffic.sent += channel.last_tag
            traffic.sent_rate += channel.rate.rate(channel.last_tag, now)
        return traffic

    def read_rates(self, now: i64) -> i64:
        """Read the counters of the connection and its channels, for the rates."""
        self._published_rate.read(self.published, now)
        for channel in self.channels.values():
            channel.rate.read(channel.last_tag, now)
        return 1 + len(self.channels)


def _properties(broker: Broker) -> dict[str, object]:
    """Return the server-properties, with the product that clients look for."""
    personality = broker.default.personality
    return {} if personality is None else personality.open_properties()
