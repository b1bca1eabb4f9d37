"""Requests to the management of a ferrymq broker, over one connection of the driver."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from pyspark_ferrymq.errors import AmqpSourceError
from pyspark_ferrymq.options.broker_identity import identity_of
from pyspark_ferrymq.options.connection import connect_driver

if TYPE_CHECKING:
    from ferrymq.blocking import Connection, ManagementClient
    from pyspark_ferrymq.options import BrokerOptions


class BrokerRefusalError(AmqpSourceError):
    """The broker has refused a request, with this status of HTTP."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


class BrokerRequests:
    """Requests over a connection that is opened when needed, and again after it was lost."""

    def __init__(self, settings: BrokerOptions) -> None:
        self.settings = settings
        self._open: tuple[Connection, ManagementClient] | None = None
        # Whether the broker has answered before: only then is an unreachable broker tried again.
        self._known = False
        # The identity of the broker that was connected last, "" if it has none.
        self.broker_id: str = ""

    def ask(
        self,
        operation: str,
        type: str,
        name: str | None = None,
        arguments: Mapping[str, object] | None = None,
    ) -> dict[str, Any]:
        """Return the answer to a request. Raises `BrokerRefusalError`, `AmqpUnreachableError`, and
        `AmqpError` or TimeoutError if the connection is lost."""
        from ferrymq import AmqpError, ManagementError

        try:
            if self._open is None:
                self._open = connect_driver(self.settings, "ferrymq", patient=self._known)
                self._known = True
                self.broker_id = identity_of(self._open[0].remote_properties).id
            response = self._open[1].request(operation, type, name, arguments or {})
        except ManagementError as error:
            known = (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND)
            text = f"{error.description} ({error.status})"
            if error.status in known and name is not None:
                text = (
                    f"{operation} of the {type} {name!r} at {self.settings.place}:"
                    f" {error.description}"
                )
            raise BrokerRefusalError(text, error.status) from None
        except (AmqpError, TimeoutError):
            self.close()
            raise
        return response.body if isinstance(response.body, dict) else {}

    def close(self) -> None:
        """Close the connection, if one is open."""
        opened, self._open = self._open, None
        if opened is not None:
            opened[0].close()
