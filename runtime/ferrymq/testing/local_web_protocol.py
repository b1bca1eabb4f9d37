"""A connection inside a WebSocket to a broker for tests.

Imported at the first such connection: most tests need no HTTP, whose packages take long to import.
"""

from __future__ import annotations

from ferrymq.testing.local_server import LocalProtocol
from ferrymq_broker.server.http_service import WebProtocol


class LocalWebProtocol(LocalProtocol, WebProtocol):
    """A connection inside a WebSocket whose frames pass the faults."""
