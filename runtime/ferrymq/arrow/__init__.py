"""Messages as Arrow columns, and rows as messages. Needs pyarrow 19 or newer: the extra `[arrow]`.

`RecordDecoder` makes record batches of chunks of a stream, or of messages of any link.
`MessageEncoder` makes messages of record batches. `schema_of` gives the types of columns.
"""

import pyarrow

if int(pyarrow.__version__.split(".")[0]) < 19:
    # Older versions cannot make views of buffers.
    raise ImportError(
        f"ferrymq.arrow needs pyarrow 19 or newer, and there is {pyarrow.__version__}:"
        " pip install 'ferrymq[arrow]'"
    )

from ferrymq.arrow.decoder import RecordDecoder
from ferrymq.arrow.encoder import MessageEncoder
from ferrymq.arrow.schema import (
    BROKER,
    DEFAULT,
    METADATA,
    POSITION,
    RAW,
    TYPES,
    ColumnError,
    schema_of,
)

__all__ = [
    "RecordDecoder",
    "MessageEncoder",
    "ColumnError",
    "schema_of",
    "TYPES",
    "POSITION",
    "DEFAULT",
    "METADATA",
    "BROKER",
    "RAW",
]
