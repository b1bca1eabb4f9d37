"""Services: nodes that answer requests. Requests come over one link, responses are sent over
another.

A link that sends to a service gets a target of its own, so that the service knows which client
asks. A link that receives from a service gets a private queue, in which its responses wait for
credit. Before a request is carried out, the service finds the place for the response and keeps room
there. A request whose response has no place or no room is refused and changes nothing. A response
that is larger than the max-message-size of its link, or than the free room, is replaced by a short
one that says so.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq.engine.pairing import ME, PAIRED
from ferrymq_broker import audit
from ferrymq_broker.access.access import UNAUTHORIZED
from ferrymq_broker.errors import BrokerError
from ferrymq_broker.event_log import log
from ferrymq_broker.nodes.message import BrokerMessage
from ferrymq_broker.nodes.node import Node, Refusal, Space
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.nodes.request import Request, Response, encode_response, read_request
from ferrymq_broker.nodes.response_room import ResponseRoom
from ferrymq_broker.values.names import PART
from ferrymq_broker.values.policy import QueuePolicy
from ferrymq_codec.errors import DecodeError, EncodeError

if TYPE_CHECKING:
    from ferrymq_broker.nodes.link_terms import Party, SourceTerms, TargetTerms
    from ferrymq_types.transport import Error

# The most responses that may wait for one link, and the bytes above which no more requests are
# answered to it. This stops a client that sends requests and does not read the responses.
PENDING: Final = 1000
PENDING_BYTES: Final = 8 * 1024 * 1024
# The reason in the short response.
_SHORT: Final = "the response is too large"
_TRANSACTIONAL: Final = Refusal(
    "amqp:not-implemented",
    "requests to a service take effect at once and cannot be part of a transaction",
)
_TOKEN_BYTES: Final = 18


@final
class ResponseLink:
    """A link for responses, and the queue in which they wait."""

    __slots__ = ("party", "name", "target_address", "paired", "max_message_size", "queue")

    def __init__(self, terms: SourceTerms, queue: Queue) -> None:
        self.party: Party = terms.party
        self.name: str = terms.link_name
        self.target_address: str | None = terms.target_address
        self.paired: bool = terms.paired
        self.max_message_size: i64 = terms.max_message_size
        self.queue: Queue = queue


@final
class ServiceTarget(Node):
    """The service as the target of one requesting link; it knows to whom the link belongs."""

    __slots__ = ("service", "party", "link_name", "source_address", "paired")

    def __init__(self, service: ServiceNode, terms: TargetTerms) -> None:
        super().__init__(service.address, service.space)
        self.service: ServiceNode = service
        self.party: Party = terms.party
        self.link_name: str = terms.link_name
        self.source_address: str | None = terms.source_address
        self.paired: bool = terms.paired

    @property
    def kind(self) -> str:
        """``service``."""
        return "service"

    def publish(self, message: BrokerMessage) -> Refusal | None:
        """Carry out the request."""
        return self.service.serve(self, message)

    def reserve(self, message: BrokerMessage, holders: list[Node]) -> Refusal | None:
        """Refuse: the effect of a request cannot be rolled back."""
        return _TRANSACTIONAL

    def link_opened(self) -> None:
        """Count the requesting link."""
        super().link_opened()
        self.service.entrances[self] = None
        self.service.link_opened()

    def link_closed(self) -> None:
        """Forget the requesting link, which is gone."""
        super().link_closed()
        self.service.entrances.pop(self, None)
        self.service.link_closed()


@final
class ServiceNode(Node):
    """A node that calls `answer(request)` for every request.

    `answer` must not raise. If it returns None, the response comes later, by `respond` in another
    pass. `served` and `refused` count requests. `failed` makes a short response, with a reason, for
    a request whose proper response cannot be sent.
    """

    __slots__ = (
        "answer",
        "failed",
        "served",
        "refused",
        "entrances",
        "_response_links",
        "_by_connection",
        "_pairs",
    )

    def __init__(
        self,
        address: str,
        space: Space,
        answer: Callable[[Request], Response | None],
        failed: Callable[[str], Response] | None = None,
    ) -> None:
        super().__init__(address, space)
        self.answer: Callable[[Request], Response | None] = answer
        self.failed: Callable[[str], Response] | None = failed
        self.served: i64 = 0
        self.refused: i64 = 0
        # The links for responses, in the order of their attachment.
        self.entrances: dict[ServiceTarget, None] = {}
        self._response_links: dict[SourceTerms, ResponseLink] = {}
        self._by_connection: dict[int, list[ResponseLink]] = {}
        # The receiving links of link pairs, by user, container and name.
        self._pairs: dict[tuple[str | None, str, str], list[ResponseLink]] = {}

    @property
    def kind(self) -> str:
        """``service``."""
        return "service"

    # -- links ---------------------------------------------------------------------------

    def open_source(self, terms: SourceTerms) -> Node:
        """Return a private queue for the responses to this link."""
        if terms.part:
            raise BrokerError(
                "amqp:not-found", f"{self.address!r} has no parts; use the address without '::'"
            )
        if terms.distribution_mode == "copy":
            raise BrokerError(
                "amqp:not-implemented",
                "responses cannot be browsed; attach without distribution-mode copy",
            )
        terms.filters.decline_position()
        if terms.paired:
            terms.granted_properties[PAIRED] = True
        address = f"{self.address}{PART}{secrets.token_urlsafe(_TOKEN_BYTES)}"
        queue = Queue(address, self.space, QueuePolicy(durable=False))
        link = ResponseLink(terms, queue)
        self._response_links[terms] = link
        self._by_connection.setdefault(terms.party.connection, []).append(link)
        if link.paired:
            self._pairs.setdefault(_pair_key(link.party, link.name), []).append(link)
        return queue

    def close_source(self, terms: SourceTerms, closed: bool) -> None:
        """Drop the queue of a link with the responses in it."""
        link = self._response_links.pop(terms, None)
        if link is None:
            return
        connection = terms.party.connection
        links = self._by_connection[connection]
        links.remove(link)
        if not links:
            del self._by_connection[connection]
        if link.paired:
            key = _pair_key(link.party, link.name)
            halves = self._pairs[key]
            halves.remove(link)
            if not halves:
                del self._pairs[key]
        link.queue.purge()
        link.queue.deleted = True

    def open_target(self, terms: TargetTerms) -> Node:
        """Return a target for this link."""
        if terms.part:
            raise BrokerError(
                "amqp:not-found", f"{self.address!r} has no parts; use the address without '::'"
            )
        if terms.paired:
            terms.granted_properties[PAIRED] = True
        return ServiceTarget(self, terms)

    def target(self, part: str) -> Node:
        """Refuse: requests must come over a link, not from a dead-letter queue or a binding."""
        raise BrokerError(
            "amqp:not-allowed", f"requests to {self.address!r} need a link to that address"
        )

    # -- requests and responses ------------------------------------------------------------

    def publish(self, message: BrokerMessage) -> Refusal | None:
        """Refuse a message that came without a link, because its sender is not known."""
        self.refused += 1
        return Refusal(
            "amqp:not-allowed", f"requests to {self.address!r} need a link to that address"
        )

    def reserve(self, message: BrokerMessage, holders: list[Node]) -> Refusal | None:
        """Refuse: the effect of a request cannot be rolled back."""
        return _TRANSACTIONAL

    def serve(self, entrance: ServiceTarget, message: BrokerMessage) -> Refusal | None:
        """Carry out the request; return None if it was carried out, with or without success."""
        try:
            request = read_request(message, entrance.party)
            reply_to = request.properties.reply_to
            link = self._link_for(entrance, reply_to)
            request.most = 0 if link is None else link.max_message_size
            request.reply_to = ME if reply_to is None and entrance.paired else reply_to
            request.room = self._room_for(entrance, request, link)
            request.way = None if request.room is None else request.room.node
        except DecodeError as error:
            self.refused += 1
            return Refusal("amqp:decode-error", str(error))
        except BrokerError as error:
            self.refused += 1
            if error.condition == UNAUTHORIZED:
                party = entrance.party
                audit.access_refused(
                    party.peer, party.user, error.description, self.space.name, via="reply-to"
                )
            return Refusal(error.condition, error.description)
        self.served += 1
        try:
            response = self.answer(request)
        except BaseException:
            request.free_room()
            raise
        return None if response is None else self.respond(request, response)

    def respond(self, request: Request, response: Response) -> Refusal | None:
        """Send the response, or the short one that `failed` makes instead.

        Returns the refusal if neither can be sent.
        """
        request.free_room()
        refusal = self._send(request, response)
        if refusal is not None and self.failed is not None:
            for reason in (refusal.description, _SHORT):
                if self._send(request, self.failed(reason)) is None:
                    return None
        return refusal

    def _send(self, request: Request, response: Response) -> Refusal | None:
        way = request.way
        if way is None:
            return None
        try:
            answer = encode_response(response, request.reply_to, request.properties)
        except EncodeError as error:
            log.error("response not encoded", address=self.address, reason=str(error))
            return Refusal("amqp:internal-error", f"the response cannot be encoded: {error}")
        size = len(answer.payload)
        if 0 < request.most < size:
            return Refusal(
                "amqp:link:message-size-exceeded",
                f"the response has {size} bytes; the max-message-size of its link is "
                f"{request.most}",
            )
        # The request may have deleted that node.
        if way.deleted:
            return None
        refusal = way.publish(answer)
        if refusal is None:
            return None
        return Refusal(
            refusal.condition,
            f"there is no room for the response, which has {size} bytes: {refusal.description}",
            refusal.released,
            refusal.info,
        )

    def _room_for(
        self, entrance: ServiceTarget, request: Request, link: ResponseLink | None
    ) -> ResponseRoom | None:
        """Keep room for the response; return None if the client wants no response. Raises
        `BrokerError`."""
        if link is not None:
            queue = link.queue
            if queue.message_count() + queue.promised >= PENDING or queue.bytes >= PENDING_BYTES:
                raise BrokerError(
                    "amqp:resource-limit-exceeded",
                    f"too many responses wait for the link {link.name[:200]!r}; give it credit "
                    "and receive them first",
                )
            kept = ResponseRoom(queue)
            kept.keep()
            return kept
        reply_to = request.reply_to
        if reply_to is None:
            return None
        address = self.space.meant_by(reply_to)
        entrance.party.access.require_send(address, reply_to)
        node = self.space.existing_target(address)
        if node is None:
            raise BrokerError(
                "amqp:not-found", f"the reply-to address {reply_to[:200]!r} does not exist"
            )
        least = Response({}) if self.failed is None else self.failed(_SHORT)
        room = ResponseRoom(node)
        room.keep_for(encode_response(least, reply_to, request.properties))
        return room

    def _link_for(self, entrance: ServiceTarget, reply_to: str | None) -> ResponseLink | None:
        """Return the link for the response; None if it goes elsewhere.

        For ``$me`` that is the other link of the pair (Link Pairing 1.0 §2.1). Any other response
        goes to a link of the same connection that is not in a pair. With a reply-to, that is the
        link with this target address, else the link with this name, else the link that consumes
        from this address. Without a reply-to, it is the only link of the session, else of the
        connection; if there are several, the one with the name of the requesting link. Links of the
        same session come first.
        """
        party = entrance.party
        if entrance.paired and (reply_to is None or reply_to == ME):
            other = self._other_half(entrance)
            if other is None:
                raise BrokerError(
                    "amqp:precondition-failed",
                    f"the other link of the pair {entrance.link_name[:200]!r} is not attached",
                )
            return other
        links = [link for link in self._by_connection.get(party.connection, ()) if not link.paired]
        if not links:
            return None
        near = [link for link in links if link.party.session == party.session]
        if reply_to is None:
            return _only(near or links, entrance.link_name)
        for candidates in (near, links):
            for link in candidates:
                if link.target_address == reply_to:
                    return link
            for link in candidates:
                if link.name == reply_to:
                    return link
        for link in links:
            if link.queue.address == reply_to:
                return link
        return None

    def _other_half(self, entrance: ServiceTarget) -> ResponseLink | None:
        """Return the link that is paired with a requesting link (Link Pairing 1.0 §2.1).

        A pair belongs to a container. Its links may be in two sessions, or in two connections if
        the user is authenticated; a link of the same connection comes first. On one connection the
        engine has compared the addresses.
        """
        party = entrance.party
        away: ResponseLink | None = None
        for link in self._pairs.get(_pair_key(party, entrance.link_name), ()):
            if link.party.connection == party.connection:
                return link
            if party.user is not None or (party.access.open and link.party.access.open):
                if link.target_address == entrance.source_address:
                    away = link
        return away

    # -- information, and the end ------------------------------------------------------------

    def message_count(self) -> i64:
        """Return the number of responses that wait."""
        count: i64 = 0
        for link in self._response_links.values():
            count += link.queue.message_count()
        return count

    def describe(self) -> dict[str, object]:
        """Return the figures of the service."""
        return {
            "name": self.address,
            "type": self.kind,
            "links": self.links,
            "requests": self.served,
            "refused": self.refused,
            "pending": self.message_count(),
        }

    def delete(self, error: Error) -> None:
        """End every link with `error`."""
        super().delete(error)

    def parts(self) -> list[Node]:
        """Return the targets of its requesting links and the queues of responses."""
        parts: list[Node] = list(self.entrances)
        parts += [link.queue for link in self._response_links.values()]
        return parts


def _pair_key(party: Party, name: str) -> tuple[str | None, str, str]:
    return (party.user, party.container_id, name)


def _only(links: list[ResponseLink], name: str) -> ResponseLink:
    """Return the only link, or of several the one with the name. Raises `BrokerError`."""
    if len(links) == 1:
        return links[0]
    for link in links:
        if link.name == name:
            return link
    raise BrokerError(
        "amqp:precondition-failed",
        f"the request has no reply-to, and {len(links)} links could take its response; set "
        "reply-to",
    )
