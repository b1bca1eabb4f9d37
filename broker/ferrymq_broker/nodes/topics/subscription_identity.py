"""Whose subscription it is, and what it is called.

A durable subscription is found again by what its client calls itself and the link: the user it has
proved to be, its container-id, the name of the link (AMQP 1.0 §2.6.1). A shared one has the name up
to the first ``|``, for clients number the links they have to one subscription behind it; with the
capability ``global`` the name alone counts, whoever uses it.

| subscription | its name |
|---|---|
| durable | ``CONTAINER/LINK``, ``USER@CONTAINER/LINK`` |
| durable, shared, global; declared | ``NAME`` |
| shared, not durable | ``~CONTAINER/NAME``, ``~/NAME`` if it is global |
| neither | ``~TOKEN``, at random |

Of `%`, `/`, `@` and `~` in user, container and a name that stands alone, and of ``::`` everywhere,
it has the percent-encoding: no two subscriptions share a name, and no name is taken for another
address.
"""

from __future__ import annotations

import secrets
from typing import Final, final

from ferrymq_broker.nodes.link_terms import SourceTerms
from ferrymq_broker.values.names import PART

# 144 random bits.
_TOKEN_BYTES: Final = 18


@final
class SubscriptionIdentity:
    """What a subscription with these terms is known by, and what is behind that.

    `kept` is whether it is to outlive its links: the terminus is durable, or does not expire at
    once when its link is detached (AMQP 1.0 §3.5.5–6). An endpoint that is not durable and expires
    with its session, the default, is not kept: that is how clients ask for a plain subscription.
    """

    __slots__ = ("kept", "shared", "everywhere", "label", "key")

    def __init__(self, terms: SourceTerms) -> None:
        party = terms.party
        policy = terms.expiry_policy
        self.kept = (
            terms.durable > 0
            or terms.timeout > 0
            or policy == "never"
            or policy == "connection-close"
        )
        self.shared = "shared" in terms.capabilities
        self.everywhere = self.shared and "global" in terms.capabilities
        name = terms.link_name
        if self.shared:
            name = name.partition("|")[0]
        self.label = name
        self.key = (
            global_key(name) if self.everywhere else own_key(party.user, party.container_id, name)
        )

    def name(self, terms: SourceTerms) -> str:
        """Return the name of the subscription: a new one that nobody can guess if it is neither
        durable nor shared."""
        if not self.kept and not self.shared:
            return f"~{secrets.token_urlsafe(_TOKEN_BYTES)}"
        label = self.label
        if self.everywhere:
            return public_name(label) if self.kept else f"~/{_colons(label)}"
        party = terms.party
        owner = escape(party.container_id)
        if party.user is not None:
            owner = f"{escape(party.user)}@{owner}"
        name = _colons(f"{owner}/{label}")
        return name if self.kept else f"~{name}"


def global_key(name: str) -> str:
    """Return what identifies a subscription that is everybody's."""
    return f"global\0{name}"


def public_name(name: str) -> str:
    """Return what a subscription that is everybody's is called."""
    return _colons(escape(name))


def is_open_to(name: str, user: str | None) -> bool:
    """Return whether a subscription of this name would be everybody's, or this user's."""
    label = name.removeprefix("~")
    owner, slash, _ = label.partition("/")
    if not slash:
        # A random name is a link's own, whoever has that.
        return label == name
    if not owner:
        return True
    who, at, _ = owner.partition("@")
    return user is None if not at else user is not None and who == _colons(escape(user))


def escape(text: str) -> str:
    """Return the text without what separates the parts of a name."""
    return text.replace("%", "%25").replace("/", "%2F").replace("@", "%40").replace("~", "%7E")


def own_key(user: str | None, container: str, name: str) -> str:
    """Return what identifies a subscription that is one container's."""
    # NUL is in no user name; a container-id with one comes out different in length.
    who = "" if user is None else f"={user}"
    return f"own\0{who}\0{len(container)}\0{container}\0{name}"


def _colons(name: str) -> str:
    name = name.replace(PART, "%3A%3A")
    return "%3A" + name[1:] if name.startswith(":") else name
