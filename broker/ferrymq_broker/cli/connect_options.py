"""How a command connects to a broker: as whom, and by what kind of TLS."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final, NamedTuple

from ferrymq.options import ConnectionArguments
from ferrymq_broker.cli.credentials import Credentials, PasswordFile, TokenFile, User
from ferrymq_broker.cli.tls_options import Ca, Cert, Key, NoVerify, TlsOptions


class ConnectOptions(NamedTuple):
    """All that was said about a connection, but where to."""

    credentials: Credentials = Credentials()
    securing: TlsOptions = TlsOptions()

    def arguments(self, url: str) -> tuple[str, ConnectionArguments]:
        """URL and arguments for `ferrymq.connect`, and for nobody else: there are secrets in them.

        Raises `ConfigError` and ValueError if something makes no sense, and `OSError` for a file
        that cannot be used.
        """
        token = self.credentials.token(url)
        url = self.credentials.put_into(url)
        arguments = self.securing.arguments(url)
        if token is not None:
            arguments.pop("sasl", None)
            arguments["token"] = token
        return url, arguments


# What was said before the command that is running: ``ferrymq admin --ca FILE list queues``.
_NOTHING: Final = ConnectOptions()
_SAID: Final[ContextVar[ConnectOptions]] = ContextVar("connecting", default=_NOTHING)


def take_options(
    user: User = None,
    password_file: PasswordFile = None,
    token_file: TokenFile = None,
    ca: Ca = None,
    cert: Cert = None,
    key: Key = None,
    no_verify: NoVerify = False,
) -> None:
    """The options of a group of commands, before the command's own."""
    credentials = Credentials(user, password_file, token_file)
    _SAID.set(ConnectOptions(credentials, TlsOptions(ca, cert, key, no_verify)))


def connecting_of_command() -> ConnectOptions:
    """What was said before the command that is running."""
    return _SAID.get()
