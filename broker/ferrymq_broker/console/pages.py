"""The files of the console: those of this package, and the charts of the package ``youplot``.

Nothing comes from elsewhere, and no page has a script or a style inside: the policy of the answers
forbids both. Without the extra ``console`` there are no charts; the page then has only the numbers.
"""

from __future__ import annotations

import hashlib
import importlib.util
import mimetypes
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Final

from ferrymq_broker.event_log import log
from ferrymq_broker.server.http_handlers import HttpHandler, HttpRequest, HttpResponse

_FOLDER: Final = Path(__file__).with_name("static")
_INDEX: Final = "index.html"
# The charts: the package with uPlot, and for each file its name there and its SHA-256, that of the
# file in uPlot's own release.
_CHARTS: Final = "youplot"
_VENDOR: Final = {
    "vendor/uplot.js": (
        "uplot.iife.min.js",
        "2d27e8ad3d228164525ce213f9dc716f39b4e3aee0cc773fb3491c96cf4921a2",
    ),
    "vendor/uplot.css": (
        "uplot.min.css",
        "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    ),
}

_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # The browser asks each time whether its copy is still the same.
    "Cache-Control": "no-cache",
}


@dataclass(frozen=True, slots=True)
class _File:
    """A file in memory, and the fields of the answer that has it."""

    body: bytes
    headers: dict[str, str]


def make_handler() -> HttpHandler:
    """Return the handler of the files, which are read now."""
    return _Files(_read_files()).handle


class _Files:
    """The files by their paths."""

    def __init__(self, files: dict[str, _File]) -> None:
        self._files = files

    def handle(self, request: HttpRequest) -> HttpResponse:
        if request.method not in ("GET", "HEAD"):
            return HttpResponse(HTTPStatus.METHOD_NOT_ALLOWED, headers={"Allow": "GET, HEAD"})
        _, _, path = request.path.lstrip("/").partition("/")
        if "/" not in request.path[1:]:
            # The addresses in the page are relative to the folder.
            return HttpResponse(
                HTTPStatus.PERMANENT_REDIRECT, headers={"Location": f"{request.path}/"}
            )
        file = self._files.get(path or _INDEX)
        if file is None:
            return HttpResponse(HTTPStatus.NOT_FOUND, headers=_HEADERS)
        if request.headers.get("if-none-match") == file.headers["ETag"]:
            return HttpResponse(HTTPStatus.NOT_MODIFIED, headers=file.headers)
        return HttpResponse(HTTPStatus.OK, file.body, file.headers)


def _read_files() -> dict[str, _File]:
    files = {
        path.relative_to(_FOLDER).as_posix(): _file(path.name, path.read_bytes())
        for path in sorted(_FOLDER.rglob("*"))
        if path.is_file()
    }
    return {**files, **_read_charts()}


def _read_charts() -> dict[str, _File]:
    """Return the files of the charts; none without their package, or if they are not the known
    ones. The package itself is not imported."""
    found = importlib.util.find_spec(_CHARTS)
    if found is None or found.origin is None:
        return {}
    folder = Path(found.origin).with_name("vendor")
    files: dict[str, _File] = {}
    for path, (name, digest) in _VENDOR.items():
        try:
            body = (folder / name).read_bytes()
        except OSError as error:
            log.warning("the console has no charts", reason=str(error))
            return {}
        if hashlib.sha256(body).hexdigest() != digest:
            log.warning("the console has no charts", reason=f"{name} is another file")
            return {}
        files[path] = _file(path, body)
    return files


def _file(name: str, body: bytes) -> _File:
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    if kind.startswith("text/"):
        kind += "; charset=utf-8"
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    return _File(body, {**_HEADERS, "Content-Type": kind, "ETag": tag})
