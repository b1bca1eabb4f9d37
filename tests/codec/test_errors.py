"""The error tree, and that errors say where they are."""

from __future__ import annotations

import pickle

import pytest

from ferrymq_codec import AmqpError, CodecError, DecodeError, EncodeError
from ferrymq_codec.reader import Reader


def test_one_tree() -> None:
    assert issubclass(CodecError, AmqpError)
    assert issubclass(EncodeError, CodecError)
    assert issubclass(DecodeError, CodecError)


def test_a_decode_error_names_place_and_reason() -> None:
    with pytest.raises(DecodeError) as caught:
        Reader(b"\x40\x40\xa1\x01a", 2).read_uint("transfer.delivery-id")
    error = caught.value
    assert (error.offset, error.field) == (2, "transfer.delivery-id")
    assert str(error) == "transfer.delivery-id: expected uint, found string (0xa1) (at byte 2)"


def test_errors_survive_pickling() -> None:
    for error in (DecodeError(3, "open.hostname", "truncated"), EncodeError("a.b", "too big")):
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert vars(again) == vars(error)
