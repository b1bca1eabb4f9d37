"""Options of a connection to a broker: credentials and TLS."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final, NamedTuple

from ferrymq.options import ConnectionArguments
from ferrymq_broker.cli.credentials import Credentials, PasswordFile, TokenFile, User
from ferrymq_broker.cli.tls_options import Ca, Cert, Key, NoVerify, TlsOptions


class ConnectOptions(NamedTuple):
    """The options of a connection, except its URL."""

    credentials: Credentials = Credentials()
    securing: TlsOptions = TlsOptions()

    def arguments(self, url: str) -> tuple[str, ConnectionArguments]:
        """Return URL and arguments for `ferrymq.connect`. Do not print them: they contain secrets.

        Raises `ConfigError` and ValueError for options that do not fit together, and `OSError` for
        a file that cannot be used.
        """
        token = self.credentials.token(url)
        url = self.credentials.put_into(url)
        arguments = self.securing.arguments(url)
        if token is not None:
            arguments.pop("sasl", None)
            arguments["token"] = token
        return url, arguments


# The options before the command that is running: ``ferrymq admin --ca FILE list queues``.
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
    """Store the options of a group of commands, which come before the command."""
    credentials = Credentials(user, password_file, token_file)
    set_options(ConnectOptions(credentials, TlsOptions(ca, cert, key, no_verify)))


def set_options(options: ConnectOptions) -> None:
    """Store the options of the command that is running, for `connecting_of_command`."""
    _SAID.set(options)


def connecting_of_command() -> ConnectOptions:
    """Return the options of the command that is running."""
    return _SAID.get()
