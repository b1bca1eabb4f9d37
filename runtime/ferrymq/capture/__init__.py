"""Capture: streams kept as Parquet files, whose names say what is in them.

    <directory>/<stream>/date=YYYY-MM-DD/hour=HH/p<partition>-<first>-<last>.parquet
    <directory>/<stream>/_stream.json

A file has the records of one partition from the offset `first` to `last`, both included, none
missing. Date and hour (UTC) are those of its first record, and the last is of the same hour. It is
written under a name that begins with ``_tmp-``, synced and renamed: it is there whole or not at
all. So a listing says what has been captured, and `coverage` says whether that hangs together.
``_stream.json`` says which incarnation of the stream it is (`claim`).

Writing files (`CaptureFile`) and directories that are not on this machine (`open_place` of a URI)
need pyarrow: the extra ``[arrow]``.
"""

from ferrymq.capture.coverage import Coverage, Overlap, Range, coverage
from ferrymq.capture.errors import CaptureError, IncarnationError
from ferrymq.capture.names import TMP, CaptureName, parse_name, stream_folder
from ferrymq.capture.place import LocalPlace, Place, open_place
from ferrymq.capture.stream_file import StreamFile, check, claim, read_stream_file

__all__ = [
    "CaptureName",
    "parse_name",
    "stream_folder",
    "TMP",
    "Coverage",
    "Overlap",
    "Range",
    "coverage",
    "Place",
    "LocalPlace",
    "open_place",
    "StreamFile",
    "read_stream_file",
    "check",
    "claim",
    "CaptureError",
    "IncarnationError",
]
