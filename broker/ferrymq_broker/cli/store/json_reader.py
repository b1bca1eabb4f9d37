"""A reader of the lines of an export, which may come from an untrusted source.

The memory for reading is limited by the longest line and the most values of a line. It does not
grow with the number of lines.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from io import BufferedIOBase
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

from ferrymq_broker.cli.store.export import END, HEADER
from ferrymq_broker.cli.store.json_lines import FORMAT, record_of
from ferrymq_broker.cli.store.merge import Name, moved, name_of
from ferrymq_broker.config.units import format_size
from ferrymq_broker.store.errors import StoreError
from ferrymq_broker.store.records import Record

# The most bytes of a line: a message of 100 MiB, the largest by default, in base64, and the other
# fields.
MAX_LINE: Final = 140 << 20
# The most bytes of the first line.
_MAX_HEADER: Final = 4096
# The most commas and brackets in a line. A record has few; base64 has none.
_MAX_VALUES: Final = 250_000
# Bytes that are read before the beginning of a line is checked.
_FIRST: Final = 1 << 16


class ExportLine(NamedTuple):
    """A record with the number of its line, its table, and its name if it has one."""

    place: int
    table: int
    record: Record
    name: Name | None


def read_lines(file: Path, max_line: int, by: int = 0) -> Iterator[ExportLine]:
    """Read every record of a file that `export` wrote, and add `by` to all ids.

    Raises `StoreError` with file and line for an invalid file, and `OSError`.
    """
    opener = gzip.open if file.suffix == ".gz" else open
    place = count = 0
    ended = False
    try:
        with opener(file, "rb") as lines:
            while not ended:
                place += 1
                line = _read_line(lines, _MAX_HEADER if place == 1 else max_line, place)
                if not line:
                    break
                fields = _decode(line)
                del line
                if place == 1:
                    _check_header(fields)
                elif END in fields:
                    if fields[END] != count:
                        break
                    ended = True
                    if lines.read(1):
                        raise StoreError("there are more lines after the end")
                else:
                    count += 1
                    table, record = record_of(moved(fields, by))
                    yield ExportLine(place, table, record, name_of(table, fields.get("value")))
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise StoreError(f"{file}:{place}: it cannot be unpacked: {error}") from error
    except (StoreError, ValueError) as error:
        raise StoreError(f"{file}:{place}: {error}") from error
    except RecursionError as error:
        raise StoreError(f"{file}:{place}: values are nested too deeply") from error
    if not ended:
        raise StoreError(f"{file}: the end is missing, after {count} records")


def _read_line(lines: BufferedIOBase, most: int, place: int) -> bytes:
    """Return the next line, empty at the end of the file."""
    line = lines.readline(min(_FIRST, most + 1))
    if line and not line.startswith(b"{"):
        _refuse(place)
    if not line.endswith(b"\n") and len(line) == _FIRST:
        # Only a line that begins like a record may be long.
        line += lines.readline(most + 1 - _FIRST)
    if len(line) > most:
        if place == 1:
            _refuse(place)
        raise StoreError(
            f"the line has more than {format_size(most)}; --max-line changes the limit"
        )
    return line


def _refuse(place: int) -> NoReturn:
    raise StoreError("export did not write this" if place == 1 else "the line is not a record")


def _decode(line: bytes) -> dict[str, object]:
    if line.count(b",") + line.count(b"[") + line.count(b"{") > _MAX_VALUES:
        raise StoreError("the line has more values than a record can have")
    fields = json.loads(line, parse_constant=_no_number)
    if not isinstance(fields, dict):
        raise StoreError("the line is not a record")
    return fields


def _no_number(text: str) -> NoReturn:
    raise StoreError(f"{text} is not a number in JSON")


def _check_header(fields: dict[str, object]) -> None:
    format = fields.get(HEADER)
    if not isinstance(format, int) or isinstance(format, bool):
        raise StoreError("export did not write this")
    if format > FORMAT:
        version = str(fields.get("version"))[:40]
        raise StoreError(
            f"the file has format {str(format)[:40]}; this version of ferrymq knows the "
            f"formats up to {FORMAT}: import it with ferrymq {version} or newer"
        )
