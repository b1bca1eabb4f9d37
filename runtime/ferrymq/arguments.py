"""Names that do not exist here: the nearest one that does, or the one that another library's name
stands for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import Field, fields
from inspect import getattr_static
from typing import Any, ClassVar, Final, NoReturn, Protocol, TypeVar


class _Dataclass(Protocol):
    """An instance of any dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


T = TypeVar("T", bound=_Dataclass)

# Arguments of other libraries and what stands for them here, by the function.
_ELSEWHERE: Final[Mapping[str, Mapping[str, str]]] = {
    "connect": {
        **dict.fromkeys(
            ("host", "port", "login", "user", "username", "password"),
            "it is part of the URL: amqp://user:password@host:port",
        ),
        **dict.fromkeys(
            ("servers", "urls", "hosts"), "give a list of URLs: connect(['amqp://a', 'amqp://b'])"
        ),
        **dict.fromkeys(("virtualhost", "virtual_host", "vhost"), "give hostname='vhost:NAME'"),
        **dict.fromkeys(
            ("heartbeat", "heartbeat_interval", "ping_interval"), "give idle_time_out="
        ),
        **dict.fromkeys(("ssl_context", "tls", "ssl_options"), "give ssl="),
        **dict.fromkeys(("client_id", "connection_name", "name"), "give container_id="),
        **dict.fromkeys(
            ("reconnect_interval", "max_reconnect_attempts", "retry_total", "retry"),
            "give reconnect=True, or reconnect=ReconnectPolicy(...)",
        ),
        **dict.fromkeys(("connect_timeout", "connection_timeout"), "give timeout="),
    },
    "receiver": {
        **dict.fromkeys(
            ("prefetch", "prefetch_count", "max_messages", "max_message_count"), "give credit="
        ),
        **dict.fromkeys(
            ("no_ack", "auto_ack", "receive_mode"),
            "give snd_settle_mode=SenderSettleMode.SETTLED to receive settled messages",
        ),
        **dict.fromkeys(("max_wait_time", "wait_time"), "give timeout= to receive()"),
        **dict.fromkeys(("subscription_name", "consumer_tag"), "give name="),
        "offset": "give start=",
    },
    "sender": {
        **dict.fromkeys(("routing_key", "queue", "exchange"), "give it as the address"),
        "publisher_confirms": "send() waits for the outcome already",
    },
}


def make_options(options: type[T], call: str, given: Mapping[str, Any]) -> T:
    """Return the options for a call, such as ``connect``. Raises TypeError for an argument that
    there is not."""
    known = [field.name for field in fields(options)]
    for name in given:
        if name not in known:
            hint = _ELSEWHERE.get(call, {}).get(name)
            found = f": {hint}" if hint is not None else nearest(name, known, "=")
            raise TypeError(f"{call}() has no argument {name!r}{found}")
    return options(**given)


def nearest(name: str, known: Iterable[str], suffix: str = "") -> str:
    """Return the question for the nearest of the known names, empty if none is near."""
    # Only a wrong name needs it.
    import difflib

    found = difflib.get_close_matches(name, list(known), 1)
    return f": did you mean {found[0]}{suffix}?" if found else ""


class _Elsewhere:
    """Attribute that another library has, and that is called something else here."""

    __slots__ = ("_name", "_hint")

    def __init__(self, name: str, hint: str) -> None:
        self._name = name
        self._hint = hint

    def __get__(self, instance: object, owner: type) -> NoReturn:
        raise AttributeError(
            f"{owner.__name__!r} object has no attribute {self._name!r}: {self._hint}"
        )


class OtherNames:
    """An object that tells users of other libraries what a name of theirs is called here.

    `elsewhere` has the names and what stands for them. Each becomes an attribute of the class: a
    `__getattr__` would slow down all attributes of the object.
    """

    __slots__ = ()

    elsewhere: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name, hint in cls.elsewhere.items():
            if not any(name in vars(base) for base in cls.__mro__):
                setattr(cls, name, _Elsewhere(name, hint))

    def __dir__(self) -> list[str]:
        kind = type(self)
        return [
            name
            for name in super().__dir__()
            if not isinstance(getattr_static(kind, name, None), _Elsewhere)
        ]


def names(*groups: tuple[str, str]) -> Mapping[str, str]:
    """Return the `elsewhere` of a class, from pairs of names, divided by spaces, and their hint."""
    return {name: hint for group, hint in groups for name in group.split()}
