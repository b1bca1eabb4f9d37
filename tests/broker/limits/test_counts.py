"""Whatever comes and goes, and wherever it is cut off: what is counted is what is there, and in the
end nothing is left of it."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from ferrymq.engine.receiver import ReceiverLink
from ferrymq.engine.settings import ConnectionSettings
from ferrymq.engine.unfinished import Budget
from ferrymq_broker.connections.client_limits import ClientLimits
from ferrymq_broker.connections.handler import ConnectionHandler
from tests.broker.harness import Network
from tests.raw.frames import (
    AMQP_HEADER,
    attach_frame,
    begin_frame,
    close_frame,
    detach_frame,
    disposition_frame,
    end_frame,
    flow_frame,
    open_frame,
    source,
    target,
    transfer_frame,
)
from tests.raw.values import NULL, TRUE, binary, data_section, string, symbol, uint

LIMITS = ClientLimits(
    links=6,
    attach_size=600,
    attach_total=1200,
    unsettled_map=2,
    dynamic_nodes=2,
    unsettled=3,
    unsettled_total=4,
)
UNFINISHED = 250
SHARED = 400

_channels = st.sampled_from((0, 0, 0, 1, 1, 2))
_handles = st.sampled_from((0, 0, 0, 1, 1, 2, 3))
_flags = st.sampled_from((NULL, TRUE))
_names = st.sampled_from("abcdefg")
# Of a queue that is there, of none, of nothing; too long for the connection's sum; a new one.
_targets = st.sampled_from(
    (
        target(string("queue")),
        target(string("queue"), capabilities=symbol("x" * 200)),
        target(string("x" * 1000)),
        target(dynamic=TRUE),
        target(),
    )
)
_sources = st.sampled_from((source(string("queue")), source(dynamic=TRUE), source()))

_frames = st.one_of(
    st.builds(begin_frame, _channels),
    st.builds(end_frame, _channels),
    st.builds(
        lambda name, handle, channel, where: attach_frame(
            name, handle, channel=channel, source=source(), target=where
        ),
        _names,
        _handles,
        _channels,
        _targets,
    ),
    st.builds(
        lambda name, handle, channel, where: attach_frame(
            name, handle, receiver=True, channel=channel, source=where, target=target()
        ),
        _names,
        _handles,
        _channels,
        _sources,
    ),
    st.builds(detach_frame, _handles, st.booleans(), _channels),
    st.builds(
        lambda handle, id, size, channel: transfer_frame(
            bytes(size), handle, uint(id), binary(b"%d" % id), more=TRUE, channel=channel
        ),
        _handles,
        st.integers(0, 8),
        st.sampled_from((0, 60, 120)),
        _channels,
    ),
    st.builds(
        lambda handle, id, size, more, settled, aborted, channel: transfer_frame(
            data_section(bytes(size)),
            handle,
            uint(id),
            binary(b"%d" % id),
            settled,
            more,
            aborted=aborted,
            channel=channel,
        ),
        _handles,
        st.integers(0, 8),
        st.sampled_from((0, 60, 120)),
        _flags,
        _flags,
        st.sampled_from((NULL, NULL, NULL, TRUE)),
        _channels,
    ),
    st.builds(
        lambda handle, size, more, channel: transfer_frame(
            bytes(size), handle, more=more, channel=channel
        ),
        _handles,
        st.sampled_from((0, 60, 120)),
        _flags,
        _channels,
    ),
    st.builds(
        lambda handle, channel: flow_frame(uint(handle), uint(5), uint(0), channel),
        _handles,
        _channels,
    ),
    st.builds(
        lambda first, channel: disposition_frame(first, settled=TRUE, channel=channel),
        st.integers(0, 8),
        _channels,
    ),
)
# Who says it, and what; None is the end of the transport.
_play = st.lists(
    st.tuples(
        st.integers(0, 2), st.one_of(_frames, _frames, _frames, st.sampled_from((None, b"")))
    ),
    max_size=60,
)


class Server:
    """A broker, and connections that are made when somebody says something on them."""

    def __init__(self) -> None:
        self.net = Network(max_nodes=20)
        self.net.broker.client_limits = LIMITS
        self.net.broker.users.limit = 2
        self.net.declare("queue")
        self.nodes = len(self.net.space.nodes)
        self.shared = Budget(SHARED)
        self.handlers: dict[int, ConnectionHandler] = {}

    def handler(self, who: int) -> ConnectionHandler:
        """The connection of this client; a new one if it has none."""
        known = self.handlers.get(who)
        if known is not None and not known.output.over:
            return known
        net = self.net
        written: list[bytes] = []
        hang_up: Callable[[], object] = lambda: None  # noqa: E731
        handler = self.handlers[who] = ConnectionHandler(
            net.broker,
            ConnectionSettings(
                container_id="broker",
                initiator=False,
                channel_max=2,
                handle_max=5,
                max_links=8,
                max_unfinished=UNFINISHED,
                unfinished=self.shared,
            ),
            net.authenticator,
            net.transport,
            written.append,
            hang_up,
            net.now,
            200,
            10,
        )
        handler.receive_data(AMQP_HEADER + open_frame(string(f"c{who}")), net.now)
        for channel in (0, 1):
            links = b"".join(
                attach_frame(
                    f"{channel}{handle}",
                    handle,
                    channel=channel,
                    source=source(),
                    target=target(string("queue")),
                )
                for handle in (0, 1)
            )
            handler.receive_data(begin_frame(channel) + links, net.now)
        return handler

    def lose(self, who: int) -> None:
        """The transport ends."""
        handler = self.handlers.pop(who, None)
        if handler is not None:
            handler.receive_eof(self.net.now)
            self.net.run()

    def check(self) -> None:
        """The counts are those of what is there."""
        held = 0
        for handler in self.handlers.values():
            own = 0
            for link in handler.connection.channels.links.values():
                if isinstance(link, ReceiverLink):
                    partial = link.partial
                    begun = b"" if partial is None or partial.complete else partial.data()
                    assert link._counted == len(begun)
                    own += link._counted
            if not handler.connection.finished:
                assert handler.connection.channels.unfinished.held == own <= UNFINISHED
            held += own
            allowance = handler.parts.allowance
            assert allowance._size == sum(allowance._sizes.values()) <= LIMITS.attach_total
            assert len(allowance._sizes) <= LIMITS.links
            live = set(handler.connection.channels.links.values())
            assert set(allowance._sizes) <= live
        assert self.shared.held == held <= SHARED


@settings(deadline=None)
@given(_play)
def test_what_is_counted_is_there(play: list[tuple[int, bytes | None]]) -> None:
    server = Server()
    for who, said in play:
        if said is None:
            server.lose(who)
        else:
            server.handler(who).receive_data(said or close_frame(), server.net.now)
            server.net.run()
        server.check()
    last = list(server.handlers.values())
    for who in list(server.handlers):
        server.lose(who)
    broker = server.net.broker
    assert not broker.handlers
    assert server.shared.held == 0
    assert not broker.users._user_of and not broker.users._counts
    for handler in last:
        assert handler.parts.allowance._size == 0 and not handler.parts.allowance._sizes
        assert not handler.connection.channels.links
    assert len(server.net.space.nodes) <= server.nodes
