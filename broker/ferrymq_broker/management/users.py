"""The users of the broker, in its default virtual host. Passwords come in, and never go out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from ferrymq_broker.management.entity import EntityType, Show, deleted
from ferrymq_broker.management.errors import BAD_REQUEST, CONFLICT, CREATED, ManagementError
from ferrymq_broker.management.operation import Call, Operation, Result
from ferrymq_broker.management.sliced_query import Steps

# The most characters of a password, which is sent in one frame of a login.
_MOST_PASSWORD: Final = 1024
_MOST_NAME: Final = 255


@dataclass(frozen=True, slots=True)
class KnownUser:
    """A user with a password. `configured` is whether the user is in the configuration, where
    nothing can be changed. `groups` are those of the file and of the configuration together."""

    groups: frozenset[str]
    mechanisms: tuple[str, ...]
    configured: bool


@dataclass(frozen=True, slots=True)
class SaltedHash:
    """A fast hash of a salt and a password, from another broker."""

    algorithm: str
    salt: bytes
    digest: bytes


@dataclass(frozen=True, slots=True)
class UserChange:
    """A change of a user in the file. None leaves a password or groups as they are. `new` is
    whether the user must not exist before, `delete` whether the user is deleted."""

    name: str
    password: str | SaltedHash | None = None
    groups: Sequence[str] | None = None
    new: bool = False
    delete: bool = False


class PendingChange(Protocol):
    """A change that is under way, because hashing a password takes long."""

    @property
    def over(self) -> bool:
        """Whether it has ended."""

    def finish(self) -> None:
        """Make logins follow the change. Raises `ManagementError` if it has failed."""


class UserKeeper(Protocol):
    """An object with the users of the broker."""

    def users(self) -> Mapping[str, frozenset[str]]:
        """Return the users with a password, by name, and their groups."""

    def describe(self, name: str, groups: frozenset[str]) -> KnownUser:
        """Return what is known of one of these users."""

    def begin(self, change: UserChange) -> PendingChange:
        """Begin a change. Raises `ManagementError` if users cannot be changed here."""


class UserEntities(EntityType):
    """The users with a password. Those in the configuration cannot be changed here."""

    short = "user"
    attributes: tuple[str, ...] = ("name", "groups", "mechanisms", "origin")

    def __init__(self, keeper: UserKeeper) -> None:
        self._keeper = keeper

    def operations(self) -> dict[str, Operation]:
        """Return CREATE, READ, UPDATE and DELETE."""
        return {
            "CREATE": Operation(self.create, ("password", "groups")),
            "READ": Operation(self.read),
            "UPDATE": Operation(self.update, ("password", "groups")),
            "DELETE": Operation(self.delete),
        }

    def identities(self) -> list[str]:
        """Return the names, sorted."""
        return sorted(self._keeper.users())

    def show(self, identity: str) -> dict[str, object] | None:
        """Return what may be known of a user."""
        return self.shower([identity])(identity)

    def shower(self, identities: list[str]) -> Show:
        """Return a function that shows each of these users, after finding all once."""
        users = self._keeper.users()

        def show(identity: str) -> dict[str, object] | None:
            groups = users.get(identity)
            if groups is None:
                return None
            user = self._keeper.describe(identity, groups)
            return {
                "groups": sorted(user.groups),
                "mechanisms": list(user.mechanisms),
                "origin": "configuration" if user.configured else "file",
            }

        return show

    def create(self, call: Call) -> Steps[Result]:
        """Handle CREATE: add a user with a password."""
        name = call.required_name()
        password = _password(call)
        if password is None:
            raise ManagementError(BAD_REQUEST, "password is missing: a string is needed")
        groups = _groups(call) or []
        if name in self._keeper.users():
            raise ManagementError(
                CONFLICT, f"there is a user {name[:200]!r} already; UPDATE changes the password"
            )
        yield from self.change(UserChange(name, password, groups, new=True))
        return Result(self.shown(name), CREATED, "created")

    def update(self, call: Call) -> Steps[Result]:
        """Handle UPDATE: change the password, or set all groups. The user's connections are
        closed."""
        name = call.required_name()
        self._expect_own(name)
        change = UserChange(name, _password(call), _groups(call))
        if change.password is None and change.groups is None:
            raise ManagementError(
                BAD_REQUEST, "there is nothing to change: give password or groups"
            )
        yield from self.change(change)
        return Result(self.shown(name), description="updated")

    def delete(self, call: Call) -> Steps[Result]:
        """Handle DELETE. The user's connections are closed."""
        call.expect_only()
        name = call.required_name()
        self._expect_own(name)
        yield from self.change(UserChange(name, delete=True))
        return deleted()

    def change(self, change: UserChange) -> Steps[None]:
        """Make a change, in steps. Raises `ManagementError`."""
        pending = self._keeper.begin(change)
        while not pending.over:
            yield True
        pending.finish()

    def _expect_own(self, name: str) -> None:
        groups = self._keeper.users().get(name)
        if groups is None:
            raise self.missing(name)
        if self._keeper.describe(name, groups).configured:
            raise ManagementError(
                CONFLICT,
                f"the user {name[:200]!r} is in the configuration: change it there, and reload",
            )


def _password(call: Call) -> str | None:
    call.expect_only("password", "groups", "name", "identity", "type")
    if "password" not in call.arguments:
        return None
    password = call.arguments["password"]
    # An error must not repeat it.
    if not isinstance(password, str) or not password:
        raise ManagementError(BAD_REQUEST, "password: a string is needed, and it must not be empty")
    if "\0" in password or len(password) > _MOST_PASSWORD:
        raise ManagementError(
            BAD_REQUEST, f"password: it may have at most {_MOST_PASSWORD} characters, and no NUL"
        )
    return str(password)


def _groups(call: Call) -> list[str] | None:
    """Return the groups: a list, or a text with commas, as shells have it."""
    groups = call.arguments.get("groups")
    if groups is None:
        return None
    if isinstance(groups, str):
        groups = [group.strip() for group in groups.split(",") if group.strip()]
    if not isinstance(groups, list | tuple):
        raise ManagementError(BAD_REQUEST, "groups: a list of strings is needed")
    found: list[str] = []
    for group in groups:
        if not isinstance(group, str) or not group or not group.isprintable():
            raise ManagementError(BAD_REQUEST, "groups: each must be a printable string")
        if len(group) > _MOST_NAME:
            raise ManagementError(BAD_REQUEST, f"groups: at most {_MOST_NAME} characters each")
        found.append(str(group))
    return found
