"""``_stream.json``: which stream the files of a folder are of.

    {"version": 1, "stream": "orders", "incarnation": "0d6c…"}

A stream that was deleted and made again begins again at offset 0. Its files would lie among those
of the one before, with the same names; so the incarnation is compared before anything is written,
and whenever files and stream are read together.
"""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from ferrymq.capture.errors import CaptureError, IncarnationError
from ferrymq.capture.names import TMP
from ferrymq.capture.place import Place, names_in

STREAM_FILE: Final = "_stream.json"
_VERSION: Final = 1


class StreamFile(NamedTuple):
    """The stream's name, and its incarnation: a UUID as text; empty if the writer did not know
    it."""

    stream: str
    incarnation: str


def read_stream_file(place: Place) -> StreamFile | None:
    """Return the stream of the folder; None if it has no stream file. Raises `CaptureError`."""
    content = place.read(STREAM_FILE)
    if content is None:
        return None
    try:
        fields = json.loads(content)
        version, stream, incarnation = (fields[key] for key in ("version", "stream", "incarnation"))
    except (ValueError, KeyError, TypeError):
        raise CaptureError(f"{place.base}/{STREAM_FILE} is not what capture has written") from None
    if version != _VERSION:
        raise CaptureError(
            f"{place.base}/{STREAM_FILE} has version {version!r}; this ferrymq knows {_VERSION}"
        )
    return StreamFile(str(stream), str(incarnation))


def check(place: Place, stream: str, incarnation: str) -> StreamFile | None:
    """Check that the files in a folder belong to the stream, and return its stream file, None if
    there is none.

    Raises `IncarnationError` if they belong to another stream or incarnation; an empty incarnation
    is unknown, and not compared.
    """
    found = read_stream_file(place)
    if found is None or found == (stream, incarnation):
        return found
    if found.stream == stream and not (found.incarnation and incarnation):
        return found
    if found.stream != stream:
        raise IncarnationError(
            f"{place.base} has the files of the stream {found.stream!r}, not of {stream!r}: on this"
            " file system the two names are one; capture them into different directories"
        )
    raise IncarnationError(
        f"{place.base} has the files of another incarnation of the stream {stream!r}:"
        f" {found.incarnation}, and the stream is {incarnation}. The stream was deleted and"
        " created again. To keep the files, move the folder away; capture then makes a new one"
    )


def claim(place: Place, stream: str, incarnation: str) -> None:
    """Mark the folder as that of a stream. Raises `IncarnationError` if it belongs to another
    stream, and `CaptureError` if there are files and no stream file."""
    found = check(place, stream, incarnation)
    if found is not None and (found.incarnation or not incarnation):
        return
    if found is None and names_in(place):
        raise CaptureError(
            f"{place.base} has capture files and no {STREAM_FILE}, which names their stream:"
            " restore that file, or move the folder away"
        )
    fields = {"version": _VERSION, "stream": stream, "incarnation": incarnation}
    tmp = f"{TMP}stream.json"
    with place.create(tmp) as file:
        file.write(json.dumps(fields).encode())
    place.settle(tmp, STREAM_FILE)
