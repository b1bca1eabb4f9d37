"""Credentials of a command: a user name and a password, or a token.

A password in a URL on the command line is in the list of processes, which every user of the machine
can read. So a password can also come from a file, from the environment or from a prompt.
"""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import Annotated, Final, NamedTuple
from urllib.parse import quote, urlsplit, urlunsplit

import typer

from ferrymq.url import Url, parse_url, parse_urls, split_urls
from ferrymq_broker.cli.options import of_file
from ferrymq_broker.config.errors import ConfigError

PASSWORD: Final = "FERRYMQ_PASSWORD"
TOKEN: Final = "FERRYMQ_TOKEN"
# The most characters of a password.
_MOST: Final = 1024
# The most characters of a token. It is sent in one frame, and a server accepts 8 KiB before login.
_MOST_OF_TOKEN: Final = 8000

User = Annotated[
    str | None,
    typer.Option(
        "--user",
        envvar="FERRYMQ_USER",
        metavar="NAME",
        help=f"The user. The password comes from a prompt, from a file or from {PASSWORD}.",
        show_default=False,
    ),
]
PasswordFile = Annotated[
    Path | None,
    of_file(
        "--password-file",
        "FERRYMQ_PASSWORD_FILE",
        "A file whose first line is the password; - is standard input.",
    ),
]
TokenFile = Annotated[
    Path | None,
    of_file(
        "--token-file",
        "FERRYMQ_TOKEN_FILE",
        f"A file whose first line is a token, used instead of a password. Or set {TOKEN}.",
    ),
]


class Credentials(NamedTuple):
    """The options for credentials."""

    user: str | None = None
    password_file: Path | None = None
    token_file: Path | None = None

    def token(self, url: str) -> str | None:
        """Return the bearer token for the login; None for none. Options on the command line count
        more than the environment.

        Raises `ConfigError` for an invalid token, or if there is a password too.
        """
        if not self._has_token(parse_urls(url)):
            return None
        if self.token_file is None:
            return _checked(os.environ[TOKEN].strip(), "token", _MOST_OF_TOKEN)
        token = _first_line(self.token_file, "token", _MOST_OF_TOKEN)
        return _checked(token.strip(), "token", _MOST_OF_TOKEN)

    def _has_token(self, urls: list[Url]) -> bool:
        password = self.password_file is not None or any(url.password for url in urls)
        if self.token_file is not None:
            if password:
                raise ConfigError("--token-file and a password exclude each other: use only one")
            return True
        if TOKEN not in os.environ or password:
            return False
        if PASSWORD in os.environ:
            raise ConfigError(f"{TOKEN} and {PASSWORD} are both set: use only one")
        return True

    def put_into(self, url: str) -> str:
        """Return the URL, or each of several, with user and password in it, for the client library.
        Do not print it.

        Raises `ConfigError` if no password can be found, and ValueError for a bad URL.
        """
        texts = split_urls(url)
        urls = [parse_url(text) for text in texts]
        if any(one.password for one in urls) and _is_typed(url):
            sys.stderr.write(
                "ferrymq: WARNING: everybody on this machine can read a password on the command"
                " line; use --user, and --password-file FILE or the prompt\n"
            )
        users = [self.user if self.user is not None else one.username for one in urls]
        if self.user is not None and any(one.username not in (None, self.user) for one in urls):
            raise ConfigError("--user and the URL name different users: use only one")
        if self.password_file is not None and None in users:
            raise ConfigError("--password-file needs --user")
        has_token = self._has_token(urls)
        # A prompt asks once for a user.
        passwords: dict[str, str] = {}
        done = []
        for text, one, user in zip(texts, urls, users, strict=True):
            if user is None or (not has_token and self._is_complete(one)):
                done.append(text)
                continue
            # With a token it is the user to act as.
            named = quote(user, safe="")
            if not has_token:
                if user not in passwords:
                    passwords[user] = self._password(user)
                named = f"{named}:{quote(passwords[user], safe='')}"
            parts = urlsplit(text)
            host = parts.netloc.rpartition("@")[2]
            done.append(urlunsplit(parts._replace(netloc=f"{named}@{host}")))
        return ",".join(done)

    def _is_complete(self, url: Url) -> bool:
        """Return whether the login of a URL stays as it is. A user name in the URL needs no
        password."""
        if self.password_file is not None:
            return False
        return url.password is not None or (self.user is None and PASSWORD not in os.environ)

    def _password(self, user: str) -> str:
        if self.password_file is not None:
            password = _first_line(self.password_file, "password", _MOST)
        elif PASSWORD in os.environ:
            password = os.environ[PASSWORD]
        elif sys.stdin.isatty():
            password = typer.prompt(f"Password of {user}", hide_input=True, err=True)
        else:
            raise ConfigError(
                f"there is no terminal to ask for the password of {user!r}:"
                f" use --password-file or {PASSWORD}"
            )
        return _checked(password, "password", _MOST)


def _checked(secret: str, what: str, most: int) -> str:
    if not secret or len(secret) > most or "\0" in secret:
        raise ConfigError(f"the {what} must have 1 to {most} characters, and no NUL")
    return secret


def _first_line(path: Path, what: str, most: int) -> str:
    """Read the secret in the first line of a file. Warn if other users can read the file."""
    # The limit is in characters of UTF-8. Read one more, to notice a secret that is too long.
    most = 4 * (most + 1)
    if str(path) == "-":
        data = sys.stdin.buffer.readline(most)
    else:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if stat.S_ISREG(mode) and mode & (stat.S_IRGRP | stat.S_IROTH):
                sys.stderr.write(f"ferrymq: WARNING: others can read {path}; run chmod 600\n")
            data = file.readline(most)
    try:
        return data.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: the {what} is not UTF-8") from None


def _is_typed(url: str) -> bool:
    """Return whether the URL is on the command line, and not in the environment."""
    return any(word.endswith(url) for word in sys.argv[1:])
