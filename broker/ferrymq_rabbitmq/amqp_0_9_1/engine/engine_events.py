"""Events of the engine, in the past tense: what has happened on the connection."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from ferrymq_codec_0_9_1.method import Method
from ferrymq_types_0_9_1.basic import BasicPublish


class EngineEvent:
    """An event; `channel` is the number of its channel, 0 for the connection."""

    __slots__ = ("channel",)

    def __init__(self, channel: i64 = 0) -> None:
        self.channel: int = int(channel)


@final
class LoginStarted(EngineEvent):
    """The client has chosen a mechanism (``connection.start-ok``).

    Answer with `accept_login`, `refuse_login` or `challenge`, at once or later; nothing else is
    read until then.
    """

    __slots__ = ("mechanism", "response", "client_properties", "locale")

    def __init__(
        self,
        mechanism: str,
        response: bytes,
        client_properties: dict[str, object],
        locale: str,
    ) -> None:
        super().__init__()
        self.mechanism: str = mechanism
        self.response: bytes = response
        self.client_properties: dict[str, object] = client_properties
        self.locale: str = locale


@final
class LoginContinued(EngineEvent):
    """The client has answered a challenge (``connection.secure-ok``)."""

    __slots__ = ("response",)

    def __init__(self, response: bytes) -> None:
        super().__init__()
        self.response: bytes = response


@final
class SecretUpdated(EngineEvent):
    """The client has sent a new secret for its login. Answer with `accept_secret` or `close`."""

    __slots__ = ("secret", "reason")

    def __init__(self, secret: bytes, reason: str) -> None:
        super().__init__()
        self.secret: bytes = secret
        self.reason: str = reason


@final
class HostOpened(EngineEvent):
    """The client has named a virtual host. Answer with `open_ok` or `close`; nothing else is read
    until then."""

    __slots__ = ("virtual_host",)

    def __init__(self, virtual_host: str) -> None:
        super().__init__()
        self.virtual_host: str = virtual_host


@final
class ChannelOpened(EngineEvent):
    """The client has opened a channel, and has its answer."""

    __slots__ = ()


@final
class ChannelClosed(EngineEvent):
    """A channel is over: the client has closed it, or has broken a rule on it."""

    __slots__ = ()


@final
class MethodReceived(EngineEvent):
    """A method without a content has arrived on a channel."""

    __slots__ = ("method",)

    def __init__(self, channel: i64, method: Method) -> None:
        super().__init__(channel)
        self.method: Method = method


@final
class ContentReceived(EngineEvent):
    """A message has arrived on a channel, with encoded properties."""

    __slots__ = ("method", "properties", "body")

    def __init__(self, channel: i64, method: BasicPublish, properties: bytes, body: bytes) -> None:
        super().__init__(channel)
        self.method: BasicPublish = method
        self.properties: bytes = properties
        self.body: bytes = body


@final
class ClosedByPeer(EngineEvent):
    """The client has closed the connection; `ConnectionEnded` follows."""

    __slots__ = ("code", "text")

    def __init__(self, code: i64, text: str) -> None:
        super().__init__()
        self.code: int = int(code)
        self.text: str = text


@final
class ConnectionEnded(EngineEvent):
    """Nothing more is read or written on any channel. `reason` is empty after an orderly close.

    `failed_login` is whether the client never got through its login.
    """

    __slots__ = ("reason", "failed_login")

    def __init__(self, reason: str, failed_login: bool) -> None:
        super().__init__()
        self.reason: str = reason
        self.failed_login: bool = failed_login
