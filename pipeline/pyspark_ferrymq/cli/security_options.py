"""Options for user and TLS, given once before the command.

They have the same names as those of the other `ferrymq` commands (docs/broker/command-line.md).
"""

from __future__ import annotations

import os
import sys
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

from pyspark_ferrymq.errors import AmqpOptionError

if TYPE_CHECKING:
    from ferrymq import blocking

_PASSWORD: Final = "FERRYMQ_PASSWORD"
_TOKEN: Final = "FERRYMQ_TOKEN"


class SecurityOptions(NamedTuple):
    """The options given before the command."""

    user: str | None = None
    password_file: Path | None = None
    token_file: Path | None = None
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    no_verify: bool = False

    def options(self, url: str) -> dict[str, str]:
        """Return the options of the data source, which may contain a secret.

        Raises `AmqpOptionError` for contradictory options, and `OSError` for a file.
        """
        options = {"url": url}
        if self.user is not None:
            options["username"] = self.user
        if self.password_file is not None and self.token_file is not None:
            raise AmqpOptionError("--password-file and --token-file exclude each other")
        # Secrets are read here: executors have neither the file nor this environment.
        if self.token_file is not None or (_TOKEN in os.environ and self.password_file is None):
            secret = _line(self.token_file) if self.token_file else os.environ[_TOKEN].strip()
            options.update({"sasl.mechanism": "OAUTHBEARER", "password": secret})
        elif self.password_file is not None:
            options["password"] = _line(self.password_file)
        elif self.user is not None:
            options["password"] = self._password(self.user)
        for name, path in (("tls.ca", self.ca), ("tls.cert", self.cert), ("tls.key", self.key)):
            if path is not None:
                options[name] = str(path.absolute())
        if self.no_verify:
            options["tls.verify"] = "false"
        return options

    @staticmethod
    def _password(user: str) -> str:
        if _PASSWORD in os.environ:
            return os.environ[_PASSWORD]
        if not sys.stdin.isatty():
            raise AmqpOptionError(
                f"there is no terminal to ask for the password of {user!r}:"
                f" use --password-file or {_PASSWORD}"
            )
        return str(typer.prompt(f"Password of {user}", hide_input=True, err=True))


def connection(options: dict[str, str], role: str) -> blocking.Connection:
    """Connect from the driver with the options of the data source."""
    from pyspark_ferrymq.options import BrokerOptions, Values, connect

    return connect(BrokerOptions.parse(Values(options)), role)


def _line(path: Path) -> str:
    """Read the secret in a file. Raises `AmqpOptionError` and `OSError`."""
    if str(path) == "-":
        return sys.stdin.readline().rstrip("\r\n")
    try:
        return path.read_text("utf-8").partition("\n")[0].rstrip("\r")
    except UnicodeDecodeError:
        raise AmqpOptionError(f"{path} has no password or token: it is not UTF-8") from None


_NOTHING: Final = SecurityOptions()
_SAID: Final[ContextVar[SecurityOptions]] = ContextVar("access", default=_NOTHING)


def _file(name: str, variable: str, help: str) -> object:
    return typer.Option(name, envvar=variable, metavar="FILE", help=help, show_default=False)


def take_options(
    user: Annotated[
        str | None,
        typer.Option(
            envvar="FERRYMQ_USER",
            metavar="NAME",
            help=f"The user. The password is asked for, or taken from a file or {_PASSWORD}.",
            show_default=False,
        ),
    ] = None,
    password_file: Annotated[
        Path | None,
        _file(
            "--password-file",
            "FERRYMQ_PASSWORD_FILE",
            "A file whose first line is the password; - is standard input.",
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        _file(
            "--token-file",
            "FERRYMQ_TOKEN_FILE",
            f"A file whose first line is a token, used instead of a password, as {_TOKEN} is.",
        ),
    ] = None,
    ca: Annotated[
        Path | None, _file("--ca", "FERRYMQ_CA", "CA certificates that verify the broker (PEM).")
    ] = None,
    cert: Annotated[
        Path | None, _file("--cert", "FERRYMQ_CERT", "The client certificate (PEM).")
    ] = None,
    key: Annotated[
        Path | None, _file("--key", "FERRYMQ_KEY", "Its key, unless that is in the same file.")
    ] = None,
    no_verify: Annotated[
        bool,
        typer.Option("--no-verify", help="Accept any certificate of the broker: only for tests."),
    ] = False,
) -> None:
    """Run pipelines on Spark: measure, archive and replay streams; sort dead letters."""
    _SAID.set(SecurityOptions(user, password_file, token_file, ca, cert, key, no_verify))


def access_options(url: str) -> dict[str, str]:
    """Return the options of the data source for the running command.

    A user's login is tried at once: before Spark starts, and while a warning can be seen.
    """
    options = _SAID.get().options(url)
    if "username" in options or "@" in url:
        connection(options, "check").close()
    return options
