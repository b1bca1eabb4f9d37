"""The node ``$cbs`` of a virtual host whose broker checks no tokens.

The vendor's clients put a token before they do anything else. Where the configuration names neither
keys nor issuers, everyone may do everything, and a token changes nothing: it is accepted unread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ferrymq_broker.nodes.request import Request, Response
from ferrymq_broker.nodes.service import ServiceNode
from ferrymq_codec.scalars import Int

if TYPE_CHECKING:
    from ferrymq_broker.addresses.address_space import AddressSpace

CBS: Final = "$cbs"
_ACCEPTED: Final = 202
_BAD_REQUEST: Final = 400


def add_open_cbs(space: AddressSpace) -> None:
    """Add the node, unless the broker checks tokens."""
    if CBS not in space.nodes:
        space.insert_service(ServiceNode(CBS, space, _answer, _failed))


def _answer(request: Request) -> Response:
    if request.application_properties.get("operation") != "put-token":
        return _response(_BAD_REQUEST, "operation: only put-token is known")
    return _response(_ACCEPTED, "Accepted")


def _failed(reason: str) -> Response:
    return _response(_BAD_REQUEST, reason)


def _response(status: int, description: str) -> Response:
    return Response({"status-code": Int(status), "status-description": description})
