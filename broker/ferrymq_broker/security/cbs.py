"""The node ``$cbs``, to which clients send tokens for nodes (claims-based security).

A request is a message with the application-properties `operation` (``put-token``), `type`, `name`
(the address that the token is for), optionally `expiration`, and the token as its body. The rights
of a token are valid for the connection that sent it, until the token expires or another one for the
same name replaces it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from ferrymq_broker import audit
from ferrymq_broker.access.grants import Grant, is_within
from ferrymq_broker.access.identity import UserIdentity
from ferrymq_broker.access.rules import bind_rules
from ferrymq_broker.config.apply.rules import make_key_rule
from ferrymq_broker.connections.token_expiry import subject_of
from ferrymq_broker.errors import BrokerError
from ferrymq_broker.event_log import log
from ferrymq_broker.log_rate_limit import LogRateLimiter
from ferrymq_broker.nodes.request import Request, Response
from ferrymq_broker.nodes.service import ServiceNode
from ferrymq_broker.security.jwks import KeysNeededError
from ferrymq_broker.security.shared_access import covers, host_of, is_signature, scope_of
from ferrymq_broker.security.token_refusal import MAX_TOKEN, TokenRefusedError
from ferrymq_broker.security.tokens import TokenVerifier
from ferrymq_codec.scalars import Int, Timestamp

if TYPE_CHECKING:
    from ferrymq_broker.access.rules import Rule
    from ferrymq_broker.addresses.address_space import AddressSpace
    from ferrymq_broker.broker import Broker
    from ferrymq_broker.config.security import Security
    from ferrymq_broker.config.tokens import SharedAccessKey

ADDRESS: Final = "$cbs"
PUT_TOKEN: Final = "put-token"
# Types of tokens. Some clients send a shared access signature as a JWT; the names of signatures
# themselves are not standardised.
_JWT_TYPES: Final = ("jwt", "amqp:jwt")

ACCEPTED: Final = 202
BAD_REQUEST: Final = 400
UNAUTHORIZED: Final = 401
FORBIDDEN: Final = 403
TOO_MANY: Final = 429
FAILED: Final = 500

# The most requests that wait for the keys of an issuer: of one connection, and of a virtual host.
_WAITING: Final = 100
_ALL_WAITING: Final = 1000
# The most bytes of a request: a token, and its properties.
_LARGEST: Final = 16 * 1024
# The rate of tokens for one connection, in tokens a second, after twice the number of tokens that
# it
# may have. Checking a signature takes longer than making one up.
_RATE: Final = 5.0
_SHOWN: Final = 200


class _Refusal(Exception):
    """A refusal of a token, with the text for the client."""

    def __init__(self, status: int, description: str) -> None:
        super().__init__(description)
        self.status = status
        self.description = description


class Cbs:
    """The tokens of one virtual host.

    A connection has at most `limit` tokens. `signature_types` are the types of tokens that must be
    shared access signatures.
    """

    def __init__(
        self,
        broker: Broker,
        space: AddressSpace,
        verifier: TokenVerifier,
        limit: int,
        signature_types: Sequence[str] = (),
    ) -> None:
        self._broker = broker
        self._types = (*_JWT_TYPES, *signature_types)
        self._space = space
        self._verifier = verifier
        self._limit = limit
        self._floods = LogRateLimiter(2 * limit, _RATE, verifier.clock.now)
        self.service: ServiceNode = ServiceNode(ADDRESS, space, self.answer, _failed)
        # Requests of connections with a token that waits for keys; later requests wait too.
        self._waiting: dict[int, deque[Request]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def answer(self, request: Request) -> Response | None:
        """Return the response to a request; None if keys have to be fetched first."""
        if self._floods.let(request.party.peer) is None:
            return _response(TOO_MANY, "the connection sends tokens too fast")
        connection = int(request.party.connection)
        if request.size > _LARGEST:
            return _response(
                BAD_REQUEST, f"the request is too large; it may have at most {_LARGEST} bytes"
            )
        queue = self._waiting.get(connection)
        if queue is not None:
            if len(queue) >= _WAITING or self._all_waiting() >= _ALL_WAITING:
                return _response(
                    TOO_MANY,
                    "too many tokens of this connection are being checked; try again later",
                )
            queue.append(request)
            return None
        try:
            return self._put(request)
        except KeysNeededError as needed:
            if self._all_waiting() >= _ALL_WAITING:
                return _response(TOO_MANY, "too many tokens are being checked; try again later")
            self._waiting[connection] = deque([request])
            task = asyncio.ensure_future(self._work_off(connection, needed))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return None

    # -- tokens that wait for keys -----------------------------------------------------------

    def _all_waiting(self) -> int:
        return sum(len(queue) for queue in self._waiting.values())

    async def _work_off(self, connection: int, needed: KeysNeededError | None) -> None:
        """Answer the requests of one connection in their order, fetching keys as needed."""
        try:
            while needed is not None:
                await needed.keys.fetch()
                stuck: asyncio.Future[KeysNeededError | None]
                stuck = asyncio.get_running_loop().create_future()
                self._broker.soon(partial(self._answer_queue, connection, stuck))
                needed = await stuck
        finally:
            for request in self._waiting.pop(connection, ()):
                request.free_room()

    def _answer_queue(self, connection: int, stuck: asyncio.Future[KeysNeededError | None]) -> None:
        """Answer the requests that need no more keys, in a pass of its own."""
        queue = self._waiting[connection]
        needed = None
        try:
            while queue:
                response = self._put(queue[0])
                self.service.respond(queue.popleft(), response)
        except KeysNeededError as error:
            needed = error
        if needed is None:
            # Later requests need not wait.
            del self._waiting[connection]
        if not stuck.done():
            stuck.set_result(needed)
        self._broker.finish_pass()

    # -- one token ---------------------------------------------------------------------------

    def _put(self, request: Request) -> Response:
        party = request.party
        scope = ""
        try:
            name, token, kind = _read(request, self._types)
            try:
                scope = scope_of(name)
                grant = self._grant(scope, name, token, kind, request)
            except TokenRefusedError as refused:
                audit.token_refused(party.peer, party.user, name[:_SHOWN], str(refused))
                raise _Refusal(UNAUTHORIZED, "the token is not valid for this name") from None
            if len(party.access.grants) >= self._limit and not party.access.grants.has(grant.scope):
                raise _Refusal(
                    FORBIDDEN,
                    f"the connection has {self._limit} tokens already, which is the limit",
                )
        except _Refusal as refusal:
            return _response(refusal.status, refusal.description)
        except KeysNeededError:
            raise
        except Exception:
            log.exception("internal error", peer=party.peer)
            return _response(FAILED, "the operation failed in the broker; its log has the details")
        identity = grant.identity
        audit.token_accepted(
            party.peer,
            party.user,
            grant.meaning or grant.scope,
            subject_of(identity),
            identity.expires,
        )
        party.access.put_grant(grant)
        return _response(ACCEPTED, "Accepted")

    def _grant(self, scope: str, name: str, token: str, kind: str, request: Request) -> Grant:
        """Return the rights of a token. Raises `TokenRefusedError`, `KeysNeededError`.

        If the name is an alias, the rights are valid for its current address too, if the token
        allows it. A signature is valid for the address that was signed, for the address that this
        is an alias of if the key has rights there, and for everything below these.
        """
        signed_for: str | None = None
        if is_signature(token):
            signed = self._verifier.check_signature(token)
            identity = signed.identity
            hosts = (host_of(signed.resource), host_of(name))
            if None not in hosts and hosts[0] != hosts[1]:
                raise TokenRefusedError("the token is for another host")
            space = None if hosts[0] is None else self._broker.hosts.get(hosts[0])
            if space is not None and space is not self._space:
                # A token of one virtual host gives no rights at another one.
                raise TokenRefusedError("the token is for another virtual host")
            signed_for = scope_of(signed.resource)
            if not covers(signed_for, scope):
                raise TokenRefusedError(
                    "the token is for another address than the name in the request"
                )
        elif kind not in _JWT_TYPES:
            raise TokenRefusedError("the body is not a shared access signature")
        else:
            identity = self._verifier.check_jwt(token)
        _shorten(identity, request, self._verifier.now())
        rules = bind_rules(self._space.rules_for(identity), identity)
        meaning = self._meaning(scope)
        if meaning is not None and signed_for is not None:
            within = is_within(signed_for, meaning)
            signed_meaning = self._meaning(signed_for)
            if not within and signed_meaning is not None:
                key_is_for_it = rules.judge(signed_meaning).given != 0
                within = key_is_for_it and is_within(signed_meaning, meaning)
            if not within:
                meaning = None
        return Grant(scope, identity, rules, meaning)

    def _meaning(self, scope: str) -> str | None:
        """Return the address of the broker that a scope stands for; None if it is the same, or no
        valid alias. A scope that belongs to an entity, such as its sub-queue, stands for the
        entity, whose rights count there."""
        try:
            meaning = self._space.judged_for(self._space.meant_by(scope))
        except BrokerError:
            # The aliases form a loop.
            return None
        return None if meaning == scope else meaning


def install_tokens(
    security: Security,
    broker: Broker,
    verifier: TokenVerifier | None,
    signature_types: Sequence[str] = (),
) -> list[ServiceNode]:
    """Add the node ``$cbs`` to every virtual host, and return the nodes; none without a verifier.
    `signature_types` are those of `Cbs`.

    Called once, when all virtual hosts exist.
    """
    if verifier is None:
        return []
    broker.takes_tokens = True
    broker.guarded = True
    broker.token_deadline = int(security.tokens.deadline * 1000)
    services = []
    for space in broker.spaces.values():
        space.key_rules = {
            key.id: partial(_own_rule, key, space)
            for key in security.shared_access_key
            if key.virtual_host == space.name
        }
        service = Cbs(broker, space, verifier, security.tokens.limit, signature_types).service
        space.insert_service(service)
        services.append(service)
    return services


def _own_rule(key: SharedAccessKey, space: AddressSpace) -> Rule | None:
    """Return the rule of a key itself in its virtual host."""
    return make_key_rule(key, space.meant_by(key.entity) if key.entity else "")


def _read(request: Request, types: Sequence[str]) -> tuple[str, str, str]:
    """Return name, token and type of a request, which must be one of the `types`. Raises
    `_Refusal`."""
    properties = request.application_properties
    operation = properties.get("operation")
    if operation != PUT_TOKEN:
        raise _Refusal(BAD_REQUEST, f"the operation must be {PUT_TOKEN}")
    kind = properties.get("type")
    if not isinstance(kind, str) or kind not in types:
        raise _Refusal(BAD_REQUEST, f"the type must be one of {', '.join(types)}")
    name = properties.get("name")
    if not isinstance(name, str):
        raise _Refusal(BAD_REQUEST, "the name that the token is for is missing or is not a string")
    expiration = properties.get("expiration")
    if expiration is not None and not isinstance(expiration, Timestamp):
        raise _Refusal(BAD_REQUEST, "the expiration must be a timestamp")
    body = request.body
    if isinstance(body, bytes | bytearray | memoryview):
        try:
            body = bytes(body).decode("ascii")
        except UnicodeDecodeError:
            raise _Refusal(BAD_REQUEST, "the body has no token") from None
    if not isinstance(body, str) or not 0 < len(body) <= MAX_TOKEN:
        raise _Refusal(BAD_REQUEST, f"the token must be text of at most {MAX_TOKEN} characters")
    return str(name), str(body), str(kind)


def _shorten(identity: UserIdentity, request: Request, now: float) -> None:
    """Shorten the lifetime of an identity to the expiration in the request, if there is one."""
    expiration = request.application_properties.get("expiration")
    if isinstance(expiration, Timestamp):
        wanted = int(expiration) / 1000.0
        if wanted <= now:
            raise TokenRefusedError("its requested expiration has passed")
        if identity.expires == 0.0 or wanted < identity.expires:
            identity.expires = wanted


def _failed(reason: str) -> Response:
    return _response(FAILED, reason)


def _response(status: int, description: str) -> Response:
    """Make a response with the status in both spellings that clients use."""
    return Response(
        {
            "status-code": Int(status),
            "status-description": description,
            "statusCode": Int(status),
            "statusDescription": description,
        }
    )
