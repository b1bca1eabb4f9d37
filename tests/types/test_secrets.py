"""What proves who somebody is can be sent and compared, and is in no repr."""

from __future__ import annotations

import copy
import pickle

import pytest
from librt.strings import BytesWriter

from ferrymq_codec.reader import Reader
from ferrymq_types.security import (
    SaslChallenge,
    SaslCode,
    SaslInit,
    SaslOutcome,
    SaslResponse,
)
from ferrymq_types.unions import decode_sasl_frame

SECRET = b"\0alice\0sesame"


@pytest.mark.spec("5.3.3")
@pytest.mark.parametrize(
    ("frame", "shown"),
    [
        (
            SaslInit(mechanism="PLAIN", initial_response=SECRET, hostname="h"),
            "SaslInit(mechanism='PLAIN', initial_response=<hidden>, hostname='h')",
        ),
        (SaslChallenge(challenge=SECRET), "SaslChallenge(challenge=<hidden>)"),
        (SaslResponse(response=SECRET), "SaslResponse(response=<hidden>)"),
        (
            SaslOutcome(code=SaslCode.OK, additional_data=SECRET),
            "SaslOutcome(code=<SaslCode.OK: 0>, additional_data=<hidden>)",
        ),
    ],
)
def test_credentials_are_not_shown(
    frame: SaslInit | SaslChallenge | SaslResponse | SaslOutcome, shown: str
) -> None:
    assert repr(frame) == str(frame) == shown
    w = BytesWriter()
    frame.encode(w)
    data = w.getvalue()
    assert SECRET in data
    assert decode_sasl_frame(Reader(data), "frame") == frame
    assert copy.copy(frame) == frame == pickle.loads(pickle.dumps(frame))
