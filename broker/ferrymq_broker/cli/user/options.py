"""Options of user commands: the file and the password."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from ferrymq_broker.config.errors import ConfigError
from ferrymq_broker.config.load import load_config

# The most characters of a password, which is sent in one frame of a login.
_MOST: Final = 1024

UsersFile = Annotated[
    Path | None,
    typer.Option("--file", metavar="FILE", envvar="FERRYMQ_USERS_FILE", help="The file of users."),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="The configuration whose users-file to use."),
]
PasswordStdin = Annotated[
    bool,
    typer.Option(
        "--password-stdin", help="Read the password from standard input instead of a prompt."
    ),
]
Groups = Annotated[
    list[str] | None,
    typer.Option("--group", metavar="GROUP", help="A group of the user; repeatable."),
]
Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False, help="The user's name.")]


def users_path(file: Path | None, config: Path | None) -> Path:
    """Return the path of the file of users. Raises `ConfigError`."""
    if config is not None:
        path = load_config(config).security.users_file
        if path is None:
            raise ConfigError(f"{config}: [security] has no users-file")
        return path
    if file is None:
        raise ConfigError("no file is given: use --file FILE, or --config FILE with a users-file")
    return file


def ask_password(name: str, from_stdin: bool) -> str:
    """Ask for the new password of a user. Raises `ConfigError` for an invalid password."""
    if from_stdin:
        try:
            password = sys.stdin.buffer.read(_MOST * 8).decode()
        except UnicodeDecodeError:
            raise ConfigError("the password is not UTF-8") from None
        password = password.removesuffix("\n").removesuffix("\r")
        if "\n" in password:
            raise ConfigError("the password must be one line")
    elif sys.stdin.isatty():
        password = typer.prompt(
            f"New password of {name}", hide_input=True, confirmation_prompt="Once more", err=True
        )
    else:
        raise ConfigError("there is no terminal to ask for a password: use --password-stdin")
    if not password:
        raise ConfigError("the password must not be empty")
    if "\0" in password or len(password) > _MOST:
        raise ConfigError(f"the password must have at most {_MOST} characters, and no NUL")
    return password
