"""Messages printed by ``ferrymq receive``, that were sent to do harm."""

from __future__ import annotations

import json

from ferrymq import Message
from ferrymq_broker.cli.rendering import as_json, as_text

ENDLESS = b"\xf0\0\0\0\x05\xff\xff\xff\xff\x41"


def test_thousands_of_millions_of_elements_without_bytes_are_counted_and_not_listed() -> None:
    message = Message.decode(b"\0\x53\x77" + ENDLESS)
    expected = {"count": 4294967295, "element": True}
    assert json.loads(as_text(message)) == expected
    assert json.loads(as_json(message))["body"] == expected
