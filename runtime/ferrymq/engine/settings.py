"""Settings of one side of a connection: the content of its open, limits and times."""

from __future__ import annotations

from typing import Final

from ferrymq.engine.opening import make_open
from ferrymq.engine.sasl import SaslMechanism
from ferrymq.engine.unfinished import Budget
from ferrymq_codec.described_types import DescribedTypes
from ferrymq_types.transport import Open

# 64 KiB holds a batch of small messages in one frame, and limits the memory of a frame.
DEFAULT_MAX_FRAME_SIZE: Final = 65536
DEFAULT_CHANNEL_MAX: Final = 2047
DEFAULT_HANDLE_MAX: Final = 1023
# Frames that a peer may send on a session before we must answer with a flow.
DEFAULT_INCOMING_WINDOW: Final = 2048
# Links of a connection: more than real applications use, too few to do harm.
DEFAULT_MAX_LINKS: Final = 65536


class ConnectionSettings:
    """Settings of one connection.

    `initiator` is true for the side that opened the transport. `idle_time_out` is in seconds: the
    connection fails when the peer is silent that long; half of it is announced, so that a peer that
    keeps to the announced time is never too late (AMQP 1.0 §2.4.5). `handshake_timeout` and
    `close_timeout`, in seconds, bound the time from the transport's start to the exchange of opens,
    and from our close to the peer's. None switches a timer off.

    SASL: the initiator gives the `sasl` mechanisms it would use, in order of
    preference, or none for no SASL layer; the other side lists the
    `sasl_mechanisms` it offers, and whether a connection without a SASL layer is
    refused (`sasl_required`).

    TLS inside AMQP (§5.2): with `tls` the initiator asks for it, and the other side agrees when
    asked; with `tls_required` the other side accepts no other first layer. A transport that begins
    with TLS (amqps) needs neither setting.

    Limits against a malicious peer: `max_links` is the number of links of a connection, on all
    sessions, that are not detached at both ends (one more ends its session). `max_unfinished` is
    the number of bytes of incomplete messages (more detaches the link), 0 for no limit;
    `unfinished` is a limit that several connections share. Without `keeps_partial` an incomplete
    message is forgotten with its link, so that it cannot be resumed.

    `max_output` is the number of bytes of output at which transfers wait until
    `Connection.data_to_send` has taken them, 0 for no limit. A message of any size then needs
    about that much output at a time.

    `types` are described types that become instances of their classes in the maps of frames, such
    as a filter set; the others become `Described`.

    `hostname` is the hostname in our open, `sasl_hostname` the hostname in our sasl-init
    (§5.3.3.2); with None the field is not set.

    `required_capabilities` are desired capabilities; the connection ends if the peer does not offer
    all of them (§2.7.1). `opening` is the open frame that is made from the settings. Raises
    ValueError for a value that no open can hold, or if the open is too large for a peer whose
    limits are unknown.
    """

    __slots__ = (
        "container_id",
        "hostname",
        "sasl_hostname",
        "initiator",
        "max_frame_size",
        "channel_max",
        "handle_max",
        "incoming_window",
        "idle_time_out",
        "handshake_timeout",
        "close_timeout",
        "offered_capabilities",
        "desired_capabilities",
        "properties",
        "sasl",
        "sasl_mechanisms",
        "sasl_required",
        "tls",
        "tls_required",
        "required_capabilities",
        "max_links",
        "max_unfinished",
        "unfinished",
        "keeps_partial",
        "max_output",
        "keepalives",
        "types",
        "opening",
    )

    def __init__(
        self,
        *,
        container_id: str,
        initiator: bool,
        hostname: str | None = None,
        max_frame_size: int = DEFAULT_MAX_FRAME_SIZE,
        channel_max: int = DEFAULT_CHANNEL_MAX,
        handle_max: int = DEFAULT_HANDLE_MAX,
        incoming_window: int = DEFAULT_INCOMING_WINDOW,
        idle_time_out: float | None = None,
        handshake_timeout: float | None = 10.0,
        close_timeout: float | None = 10.0,
        offered_capabilities: list[str] | None = None,
        desired_capabilities: list[str] | None = None,
        properties: dict[str, object] | None = None,
        sasl: SaslMechanism | list[SaslMechanism] | None = None,
        sasl_mechanisms: list[str] | None = None,
        sasl_required: bool = False,
        tls: bool = False,
        tls_required: bool = False,
        required_capabilities: list[str] | None = None,
        max_links: int = DEFAULT_MAX_LINKS,
        max_unfinished: int = 0,
        unfinished: Budget | None = None,
        keeps_partial: bool = True,
        max_output: int = 0,
        sasl_hostname: str | None = None,
        types: DescribedTypes | None = None,
    ) -> None:
        if not 512 <= max_frame_size <= 0xFFFFFFFF:
            raise ValueError(f"max_frame_size {max_frame_size}: it must be 512 … 4294967295")
        self.container_id: str = container_id
        self.hostname: str | None = hostname
        self.sasl_hostname: str | None = sasl_hostname
        self.initiator: bool = initiator
        self.max_frame_size: int = max_frame_size
        self.channel_max: int = channel_max
        self.handle_max: int = handle_max
        self.incoming_window: int = incoming_window
        self.idle_time_out: float | None = idle_time_out
        self.handshake_timeout: float | None = handshake_timeout
        self.close_timeout: float | None = close_timeout
        self.offered_capabilities: list[str] | None = offered_capabilities
        self.desired_capabilities: list[str] | None = desired_capabilities
        self.properties: dict[str, object] | None = properties
        self.sasl: list[SaslMechanism] = []
        if isinstance(sasl, list):
            self.sasl = sasl
        elif sasl is not None:
            self.sasl = [sasl]
        self.sasl_mechanisms: list[str] = [] if sasl_mechanisms is None else sasl_mechanisms
        self.sasl_required: bool = sasl_required
        self.tls: bool = tls
        self.tls_required: bool = tls_required
        self.required_capabilities: list[str] = (
            [] if required_capabilities is None else required_capabilities
        )
        self.max_links: int = max_links
        self.max_unfinished: int = max_unfinished
        self.unfinished: Budget = Budget() if unfinished is None else unfinished
        self.keeps_partial: bool = keeps_partial
        self.max_output: int = max_output
        # Set to false if the caller writes the empty frames for the peer's idle time-out itself.
        self.keepalives: bool = True
        self.types: DescribedTypes | None = types
        self.opening: Open = make_open(self)
