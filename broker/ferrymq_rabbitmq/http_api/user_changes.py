"""Changes of users over RabbitMQ's API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ferrymq_broker.management.sliced_query import Steps
from ferrymq_broker.management.users import SaltedHash, UserChange, UserEntities
from ferrymq_rabbitmq.definitions.plan import groups_of_tags, hash_in
from ferrymq_rabbitmq.management.request_refused import RequestRefused, bad_request

# The most characters of a password.
_MOST: Final = 1024


def put_user(users: UserEntities, name: str, body: Mapping[str, object]) -> Steps[object]:
    """Make a user, or change one: `password` or `password_hash`, and `tags`. Return whether the
    user was there. The password of a user who was there stays if the body has none. Raises
    `RequestRefused`, `ManagementError`."""
    there = users.show(name)
    password: str | SaltedHash | None = None
    said = body.get("password")
    if isinstance(said, str) and said:
        if "\0" in said or len(said) > _MOST:
            raise bad_request(f"password: at most {_MOST} characters, and no NUL")
        password = said
    elif body.get("password_hash"):
        try:
            password = SaltedHash(*hash_in(body))
        except ValueError as error:
            raise bad_request(str(error)) from None
    elif there is None:
        raise bad_request("password or password_hash is needed")
    if there is not None and there["origin"] == "configuration":
        raise bad_request(f"the user {name[:200]!r} is in the configuration: change it there")
    groups = groups_of_tags(body.get("tags", ""))
    yield from users.change(UserChange(name, password, groups, new=there is None))
    return there is not None


def delete_user(users: UserEntities, name: str) -> Steps[object]:
    """Delete a user. Raises `RequestRefused`, `ManagementError`."""
    there = users.show(name)
    if there is None:
        raise RequestRefused.missing("user", name)
    if there["origin"] == "configuration":
        raise bad_request(f"the user {name[:200]!r} is in the configuration: change it there")
    yield from users.change(UserChange(name, delete=True))
    return None


def delete_users(users: UserEntities, body: Mapping[str, object]) -> Steps[object]:
    """Delete the users of a list. Raises `RequestRefused`, `ManagementError`."""
    names = body.get("users")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise bad_request("users: a list of names is needed")
    for name in names:
        yield from delete_user(users, name)
    return None
