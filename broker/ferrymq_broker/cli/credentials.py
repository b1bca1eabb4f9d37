"""Who a command is that connects: a user name, and a password that nobody else sees.

A password in a URL on the command line is in the list of processes, where everybody on the machine
can read it. So there are other ways: a file, the environment, a question.
"""

from __future__ import annotations

import os
import stat
import sys
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Final, NamedTuple
from urllib.parse import quote, urlsplit, urlunsplit

import typer

from ferrymq.url import parse_url
from ferrymq_broker.errors import ConfigError

PASSWORD: Final = "FERRYMQ_PASSWORD"
# Characters of a password.
_MOST: Final = 1024

User = Annotated[
    str | None,
    typer.Option(
        "--user",
        envvar="FERRYMQ_USER",
        metavar="NAME",
        help=f"Who we are. The password is asked for, or taken from a file or {PASSWORD}.",
        show_default=False,
    ),
]
PasswordFile = Annotated[
    Path | None,
    typer.Option(
        "--password-file",
        envvar="FERRYMQ_PASSWORD_FILE",
        metavar="FILE",
        help="A file whose first line is the password; - is standard input.",
        show_default=False,
    ),
]


class Credentials(NamedTuple):
    """What was said about who we are."""

    user: str | None = None
    password_file: Path | None = None

    def put_into(self, url: str) -> str:
        """The URL with user and password in it, for the client library and nobody else.

        Raises `ConfigError` if there is no password to be had, and ValueError for a bad URL.
        """
        parsed = parse_url(url)
        if parsed.password and _is_typed(url):
            sys.stderr.write(
                "ferrymq: WARNING: everybody on this machine can read a password on the command"
                " line; say --user, and --password-file FILE or nothing to be asked\n"
            )
        user = self.user if self.user is not None else parsed.username
        if self.user is not None and parsed.username not in (None, self.user):
            raise ConfigError("--user and the URL name two users")
        if user is None:
            if self.password_file is not None:
                raise ConfigError("--password-file is the password of whom? say --user as well")
            return url
        given = self.password_file is not None or PASSWORD in os.environ
        if not given and (parsed.password is not None or self.user is None):
            # A name in a URL may do without.
            return url
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
        named = f"{quote(user, safe='')}:{quote(self._password(user), safe='')}@{host}"
        return urlunsplit(parts._replace(netloc=named))

    def _password(self, user: str) -> str:
        if self.password_file is not None:
            password = _first_line(self.password_file)
        elif PASSWORD in os.environ:
            password = os.environ[PASSWORD]
        elif sys.stdin.isatty():
            password = typer.prompt(f"Password of {user}", hide_input=True, err=True)
        else:
            raise ConfigError(
                f"there is no terminal to ask for the password of {user!r}:"
                f" use --password-file or {PASSWORD}"
            )
        if not password or len(password) > _MOST or "\0" in password:
            raise ConfigError(f"a password has 1 to {_MOST} characters, and no NUL")
        return password


def _first_line(path: Path) -> str:
    """The password in a file, which others should not be able to read."""
    if str(path) == "-":
        data = sys.stdin.buffer.readline(4 * _MOST)
    else:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if stat.S_ISREG(mode) and mode & (stat.S_IRGRP | stat.S_IROTH):
                sys.stderr.write(
                    f"ferrymq: WARNING: others can read {path}; chmod 600 would help\n"
                )
            data = file.readline(4 * _MOST)
    try:
        return data.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: the password is not UTF-8") from None


def _is_typed(url: str) -> bool:
    """Whether the URL is on the command line, and not in the environment."""
    return any(word.endswith(url) for word in sys.argv[1:])


# What was said before the command that is running: ``ferrymq admin --user NAME list queues``.
_NOTHING: Final = Credentials()
_SAID: Final[ContextVar[Credentials]] = ContextVar("credentials", default=_NOTHING)


def take_credentials(user: str | None, password_file: Path | None) -> None:
    """The options of a group of commands, before the command's own."""
    _SAID.set(Credentials(user, password_file))


def credentials_of_command() -> Credentials:
    """What was said before the command that is running."""
    return _SAID.get()
