"""HTTP responses that do not name the server's software and version.

By default the libraries name themselves in the field ``Server`` (RFC 9110 §10.2.4). An attacker
would then know which faults to try.
"""

from __future__ import annotations

import asyncio

from aiohttp import web

SERVER = "Server"


class _Answer(web.Response):
    """A response without the field ``Server``, for requests that reach no application."""

    async def _prepare_headers(self) -> None:
        await super()._prepare_headers()
        self.headers.popall(SERVER, None)


class HttpConnection(web.RequestHandler):
    """An HTTP connection. Its answers to malformed requests have no field ``Server`` either."""

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Return the answer to a request that failed."""
        found = super().handle_error(request, status, exc, message)
        text = found.text if isinstance(found, web.Response) else ""
        answer = _Answer(status=found.status, text=text, content_type=found.content_type)
        answer.force_close()
        return answer


def serve(runner: web.AppRunner) -> HttpConnection:
    """Return a protocol for one connection to the application of a runner that is set up."""
    server = runner.server
    assert server is not None
    return HttpConnection(server, loop=asyncio.get_running_loop(), **server._kwargs)


async def leave_out_server(request: web.Request, response: web.StreamResponse) -> None:
    """Remove the field ``Server`` from a response; for `web.Application.on_response_prepare`."""
    response.headers.popall(SERVER, None)
