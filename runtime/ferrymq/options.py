"""Options for connecting and for attaching links.

Each group is a dataclass, which has the defaults and their meaning, and a `TypedDict` of the same
keys, which tells type checkers the keyword arguments of `connect`, `sender` and `receiver`. Times
are in seconds or timedeltas; a timeout of None waits as long as the connection lives.
"""

from __future__ import annotations

import ssl as _ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypedDict
from uuid import uuid4

from ferrymq.chunks import MAX_CHUNK_RECORDS
from ferrymq.durations import Duration, check_duration, seconds, whole_seconds
from ferrymq.engine.sasl import SaslMechanism
from ferrymq.engine.settings import DEFAULT_INCOMING_WINDOW, DEFAULT_MAX_FRAME_SIZE
from ferrymq.reconnect import ReconnectPolicy
from ferrymq.unsettled import Unsettled
from ferrymq_codec.described_types import DescribedTypes, TypeTables
from ferrymq_types.messaging import TerminusDurability, TerminusExpiryPolicy
from ferrymq_types.transport import ReceiverSettleMode, SenderSettleMode
from ferrymq_types.unions import Outcome

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

DEFAULT_CREDIT: Final = 100
DEFAULT_CHUNK_BYTES: Final = 256 * 1024
DEFAULT_CHUNK_CREDIT: Final = 8

Timeout: TypeAlias = Duration | Literal["default"] | None
"""Seconds or a timedelta, None for no limit, or ``"default"`` for the connection's."""

Token: TypeAlias = str | Callable[[], str | Awaitable[str]]
"""A bearer token, or a function or coroutine function that returns one."""

Authorize: TypeAlias = Callable[[Any, str], Awaitable[None]]
"""A coroutine function of a `ferrymq.Session`, and of the address of a link that is about to be
attached in it."""

Start: TypeAlias = Literal["first", "last", "next"] | int | datetime
"""A place in a stream."""


def check_timeout(timeout: Timeout, name: str = "timeout") -> None:
    """Raise ValueError for a timeout that is negative or not a number, TypeError for one that is no
    duration."""
    if timeout is not None and timeout != "default":
        check_duration(timeout, name, ", or None")


class MadeUp(str):
    """Generated name: it differs in the next process."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """The keyword arguments of `connect`."""

    container_id: str = field(default_factory=lambda: MadeUp(f"ferrymq-{uuid4()}"))
    """Our name towards the peer (AMQP 1.0 §2.4.1). By default it is generated. Durable termini
    belong to it: choose a fixed one in order to find them again."""

    hostname: str | None = None
    """The host name of our open; by default that of the URL (AMQP 1.0 §2.7.1, §5.3.3.2)."""

    sasl: SaslMechanism | list[SaslMechanism] | Literal["auto"] | None = "auto"
    """How to authenticate: a mechanism, or several in order of preference. The first one that the
    server offers is used, and no other. ``"auto"``: SCRAM, then PLAIN, with the user name and
    password of the URL; ANONYMOUS if the URL has none. None: no SASL layer."""

    token: Token | None = field(default=None, repr=False)
    """A bearer token to authenticate with, by SASL OAUTHBEARER (RFC 7628), or a function that
    returns one: it is called for each connect, so that a reconnect uses a current token. Allowed
    only where no third party can read it: with TLS, or on this machine. The user name of the URL,
    if there is one, is the identity to act as."""

    ssl: _ssl.SSLContext | None = None
    """The TLS context; by default one that verifies the server with the system's authorities."""

    upgrade_tls: bool = False
    """For amqp: begin without TLS and agree on TLS before any other frame (AMQP 1.0 §5.2)."""

    idle_time_out: Duration | None = 60.0
    """The connection fails when the peer is silent for this long (AMQP 1.0 §2.4.5). None: never."""

    max_frame_size: int = DEFAULT_MAX_FRAME_SIZE
    """The largest frame that we accept, in bytes."""

    incoming_window: int = DEFAULT_INCOMING_WINDOW
    """Transfer frames that a session accepts before we must answer with a flow."""

    timeout: Duration | None = 30.0
    """Time for connecting, and for each begin, attach and detach that has no timeout of its own."""

    close_timeout: Duration = 5.0
    """How long `close` waits for the peer's close and for the transport to end."""

    properties: dict[str, object] | None = None
    offered_capabilities: list[str] | None = None
    desired_capabilities: list[str] | None = None
    """Fields of our open (AMQP 1.0 §2.7.1), which has at most 512 bytes in all."""

    required_capabilities: list[str] | None = None
    """Desired capabilities; if the peer does not offer them, the connection is closed again."""

    reconnect: bool | ReconnectPolicy = False
    """Whether to connect again when the connection is lost; see `ReconnectPolicy`. With several
    URLs it is True by default."""

    follow_redirects: bool = True
    """Whether to connect to the address that a peer gives when it closes the connection with
    ``amqp:connection:redirect`` (AMQP 1.0 §2.8.16), or refuses a link with ``amqp:link:redirect``
    (AMQP 1.0 §2.8.18). The scheme and the login stay the same. A redirected link has a connection
    of its own."""

    authorize: Authorize | None = field(default=None, repr=False)
    """A coroutine function that is called before each link is attached, also after a reconnect,
    with the session (of `ferrymq.aio`) and the address, for services that want a token for each
    address. Links that it attaches call it too. When it raises `LinkDetached`, the link ends; after
    another error while a connection is restored, that is tried again. `ferrymq.azure.connect` gives
    one."""

    tracer: Tracer | None = field(default=None, repr=False)
    """A tracer of OpenTelemetry: messages that are sent, received and settled over the connection
    get spans, and carry their contexts. Needs ``ferrymq[opentelemetry]``; see
    `ferrymq.opentelemetry`."""

    types: TypeTables | Sequence[TypeTables] | None = None
    """Types of your own that become instances of their classes where a message or a frame may have
    any value: in bodies, annotations, properties and filters. Give the module `registry` of their
    generated package, or several. Other described values become `Described`. What you send is
    encoded in any case."""

    def __post_init__(self) -> None:
        check_timeout(self.timeout)
        check_timeout(self.close_timeout, "close_timeout")
        idle = self.idle_time_out
        if idle is not None and not seconds(idle) > 0:
            raise ValueError(
                f"idle_time_out {idle!r} is no time to wait for the peer: give "
                "seconds above 0, or None"
            )
        if self.types is not None:
            DescribedTypes.of(self.types)


class ConnectionArguments(TypedDict, total=False):
    """Keyword arguments of `connect`; `ConnectionOptions` explains them."""

    container_id: str
    hostname: str | None
    sasl: SaslMechanism | list[SaslMechanism] | Literal["auto"] | None
    token: Token | None
    ssl: _ssl.SSLContext | None
    upgrade_tls: bool
    idle_time_out: Duration | None
    max_frame_size: int
    incoming_window: int
    timeout: Duration | None
    close_timeout: Duration
    properties: dict[str, object] | None
    offered_capabilities: list[str] | None
    desired_capabilities: list[str] | None
    required_capabilities: list[str] | None
    reconnect: bool | ReconnectPolicy
    follow_redirects: bool
    authorize: Authorize | None
    tracer: Tracer | None
    types: TypeTables | Sequence[TypeTables] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderOptions:
    """The keyword arguments of `sender`."""

    name: str = field(default_factory=lambda: MadeUp(f"sender-{uuid4()}"))
    """Name of the link, unique between the two containers (AMQP 1.0 §2.6.1)."""

    dynamic: bool = False
    """Ask the peer to make a node; its name is then `Sender.address` (AMQP 1.0 §3.5.4)."""

    dynamic_node_properties: dict[str, object] | None = None
    durable: TerminusDurability | bool = TerminusDurability.NONE
    expiry_policy: TerminusExpiryPolicy | None = None
    expiry_timeout: Duration = 0
    capabilities: list[str] | None = None
    """Fields of the target (AMQP 1.0 §3.5.4); `expiry_timeout` is rounded up to whole seconds.

    `durable` is True for a target that keeps unsettled deliveries (unsettled-state) until the link
    is closed, unless `expiry_policy` says otherwise. It requires a `name` here and a `container_id`
    for `connect`, because the target belongs to both. The other values only set the field; the
    expiry policy is then session-end by default.
    """

    exactly_once: bool = False
    """Each message arrives once, whatever is lost on the way: the target is durable, no message is
    sent settled, and the peer remembers a delivery until we have its outcome (receiver-settle-mode
    second). A peer that does not support this is refused. Has the requirements of
    ``durable=True``."""

    unsettled: Iterable[Unsettled] | None = None
    """Resume the deliveries of an earlier process, as it has stored them; the list may be empty.
    See `Sender.resumed`. None: do not resume."""

    snd_settle_mode: SenderSettleMode = SenderSettleMode.MIXED
    rcv_settle_mode: ReceiverSettleMode = ReceiverSettleMode.FIRST
    """Which side settles first (AMQP 1.0 §2.8.2, §2.8.3)."""

    properties: dict[str, object] | None = None
    desired_capabilities: list[str] | None = None
    """Fields of our attach (AMQP 1.0 §2.7.3)."""

    timeout: Timeout = "default"
    """Time for the attach; by default the connection's."""

    def __post_init__(self) -> None:
        check_timeout(self.timeout)
        whole_seconds(self.expiry_timeout, "expiry_timeout")


class SenderArguments(TypedDict, total=False):
    """Keyword arguments of `sender`; `SenderOptions` explains them."""

    name: str
    dynamic: bool
    dynamic_node_properties: dict[str, object] | None
    durable: TerminusDurability | bool
    expiry_policy: TerminusExpiryPolicy | None
    expiry_timeout: Duration
    capabilities: list[str] | None
    exactly_once: bool
    unsettled: Iterable[Unsettled] | None
    snd_settle_mode: SenderSettleMode
    rcv_settle_mode: ReceiverSettleMode
    properties: dict[str, object] | None
    desired_capabilities: list[str] | None
    timeout: Timeout


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiverOptions:
    """The keyword arguments of `receiver`."""

    name: str = field(default_factory=lambda: MadeUp(f"receiver-{uuid4()}"))
    """Name of the link, unique between the two containers (AMQP 1.0 §2.6.1)."""

    credit: int | Literal["manual"] = DEFAULT_CREDIT
    """How many messages of the link may be without an outcome: messages in flight, queued, and
    taken. ``"manual"``, or 0: only `Receiver.add_credit` gives credit."""

    renew: Literal["settlement", "delivery"] = "settlement"
    """When the credit of a message is given again: when the message gets its outcome, or with
    ``"delivery"`` when it is taken, for programs that take more than `credit` messages before they
    give outcomes. Messages that come settled, and those of a link in mode copy, need no outcome:
    their credit is always given again when they are taken. The client gives credit again when at
    least as much is free as is still in flight or queued."""

    mode: Literal["move", "copy"] | None = None
    """With ``"copy"``, messages stay in the node (AMQP 1.0 §3.5.7). By default the node's mode."""

    filters: dict[str, object] | None = None
    """The source's filter-set: filters by name, e.g. of `ferrymq_types.filters` (§3.5.8)."""

    selector: str | None = None
    """An SQL-like condition on messages, sent as Apache's selector filter."""

    start: Start | None = None
    """Where to begin in a stream of ferrymq: at the ``"first"`` record, at the ``"last"``, at the
    ``"next"`` that is appended, at an offset, or at the first record of an aware datetime or
    later."""

    default_outcome: Outcome | None = None
    """The outcome of messages that get none from us: those settled without one, and those that are
    unsettled when the link is lost (AMQP 1.0 §3.5.3). By default the peer decides."""

    dynamic: bool = False
    """Ask the peer to make a node; its name is then `Receiver.address` (AMQP 1.0 §3.5.3)."""

    dynamic_node_properties: dict[str, object] | None = None
    durable: TerminusDurability | bool = TerminusDurability.NONE
    expiry_policy: TerminusExpiryPolicy | None = None
    expiry_timeout: Duration = 0
    capabilities: list[str] | None = None
    """Fields of the source (AMQP 1.0 §3.5.3); `expiry_timeout` is rounded up to whole seconds.

    `durable` is True for a source that keeps unsettled deliveries (unsettled-state) until the link
    is closed, unless `expiry_policy` says otherwise. It requires a `name` here and a `container_id`
    for `connect`, because the source belongs to both. The other values only set the field; the
    expiry policy is then session-end by default.
    """

    exactly_once: bool = False
    """Each message is delivered once, whatever is lost on the way: the source is durable, and an
    outcome is final when the peer has confirmed it (receiver-settle-mode second). A peer that does
    not support this is refused. Has the requirements of ``durable=True``."""

    unsettled: Iterable[Unsettled] | None = None
    """Resume the deliveries of an earlier process, as it has stored them; the list may be empty.
    Stored outcomes are sent; the other deliveries are received again, if the peer still has them;
    see `Receiver.resumed`. None: do not resume."""

    snd_settle_mode: SenderSettleMode = SenderSettleMode.MIXED
    rcv_settle_mode: ReceiverSettleMode = ReceiverSettleMode.FIRST
    """Which side settles first (AMQP 1.0 §2.8.2, §2.8.3)."""

    max_message_size: int = 0
    """The largest message that we accept, in bytes; 0 means any."""

    properties: dict[str, object] | None = None
    desired_capabilities: list[str] | None = None
    """Fields of our attach (AMQP 1.0 §2.7.3)."""

    timeout: Timeout = "default"
    """Time for the attach; by default the connection's."""

    def __post_init__(self) -> None:
        check_timeout(self.timeout)
        if self.credit != "manual" and not self.credit >= 0:
            raise ValueError(f"credit {self.credit} is negative")
        if self.renew not in ("settlement", "delivery"):
            raise ValueError(f"renew {self.renew!r} is neither 'settlement' nor 'delivery'")
        whole_seconds(self.expiry_timeout, "expiry_timeout")


class ReceiverArguments(TypedDict, total=False):
    """Keyword arguments of `receiver`; `ReceiverOptions` explains them."""

    name: str
    credit: int | Literal["manual"]
    renew: Literal["settlement", "delivery"]
    mode: Literal["move", "copy"] | None
    filters: dict[str, object] | None
    selector: str | None
    start: Start | None
    default_outcome: Outcome | None
    dynamic: bool
    dynamic_node_properties: dict[str, object] | None
    durable: TerminusDurability | bool
    expiry_policy: TerminusExpiryPolicy | None
    expiry_timeout: Duration
    capabilities: list[str] | None
    exactly_once: bool
    unsettled: Iterable[Unsettled] | None
    snd_settle_mode: SenderSettleMode
    rcv_settle_mode: ReceiverSettleMode
    max_message_size: int
    properties: dict[str, object] | None
    desired_capabilities: list[str] | None
    timeout: Timeout


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkReaderOptions:
    """The keyword arguments of `chunk_reader`."""

    name: str = field(default_factory=lambda: MadeUp(f"chunks-{uuid4()}"))
    """Name of the link, unique between the two containers (AMQP 1.0 §2.6.1)."""

    start: Start = "first"
    """Where to begin; see `ReceiverOptions`."""

    until: int | None = None
    """End before the record with this offset; None: read without end."""

    chunk_bytes: int = DEFAULT_CHUNK_BYTES
    """Bytes of a chunk, at most; a chunk of a single record may have more. The broker grants at
    most 16 MiB."""

    chunk_records: int = MAX_CHUNK_RECORDS
    """Records of a chunk, at most. The broker grants at most 65 536."""

    credit: int = DEFAULT_CHUNK_CREDIT
    """Chunks that may be in flight or queued."""

    filters: dict[str, object] | None = None
    selector: str | None = None
    """A condition that records must meet; see `ReceiverOptions`."""

    on_trim: Literal["detach", "continue"] = "detach"
    """What to do when records were deleted before they could be read: fail, or continue after them
    and count them in `ChunkReader.skipped`."""

    max_message_size: int = 0
    """The largest chunk that we accept, in bytes, whatever its records; 0 means any."""

    properties: dict[str, object] | None = None
    """More properties for our attach (AMQP 1.0 §2.7.3)."""

    timeout: Timeout = "default"
    """Time for the attach; by default the connection's."""

    def __post_init__(self) -> None:
        check_timeout(self.timeout)
        for name in ("chunk_bytes", "chunk_records", "credit"):
            value = getattr(self, name)
            if value < 1:
                raise ValueError(f"{name} {value} is below 1")
        if self.until is not None and self.until < 0:
            raise ValueError(f"until {self.until} is negative, and no offset")
        if self.on_trim not in ("detach", "continue"):
            raise ValueError(f"on_trim {self.on_trim!r} is neither 'detach' nor 'continue'")


class ChunkReaderArguments(TypedDict, total=False):
    """Keyword arguments of `chunk_reader`; `ChunkReaderOptions` explains them."""

    name: str
    start: Start
    until: int | None
    chunk_bytes: int
    chunk_records: int
    credit: int
    filters: dict[str, object] | None
    selector: str | None
    on_trim: Literal["detach", "continue"]
    max_message_size: int
    properties: dict[str, object] | None
    timeout: Timeout
