"""Reads that end inside frames: every frame is found, whatever the places of the cuts."""

from __future__ import annotations

from random import Random

import pytest

from ferrymq.engine.frames import AMQP_FRAME
from ferrymq.engine.input import FrameInput

LIMIT = 1 << 20


def frame(size: int, fill: int) -> bytes:
    return size.to_bytes(4, "big") + b"\x02\x00\x00\x07" + bytes([fill]) * (size - 8)


def frames_of(input: FrameInput) -> list[bytes]:
    found = []
    while input.next_frame(LIMIT, AMQP_FRAME):
        found.append(input.data[input.reader.pos - 8 : input.reader.end])
    return found


@pytest.mark.parametrize("seed", range(20))
def test_frames_are_cut_out_of_reads_of_any_size(seed: int) -> None:
    random = Random(seed)
    sizes = [random.choice((8, 40, 5_000, 65_536, 300_000)) for _ in range(60)]
    sent = [frame(size, number) for number, size in enumerate(sizes)]
    stream = b"".join(sent)
    input = FrameInput()
    found: list[bytes] = []
    at = 0
    while at < len(stream):
        size = random.choice((1, 7, 3_000, 20_000, 70_000, 256_000))
        if input.feed(stream[at : at + size]):
            found += frames_of(input)
        at += size
        assert input.held() == max(0, min(at, len(stream)) - sum(map(len, found)))
    assert found == sent


def test_all_bytes_after_a_frame_are_taken() -> None:
    first, rest = frame(60_000, 1), bytes(range(256)) * 200
    input = FrameInput()
    input.feed(first[:10_000])
    assert not input.next_frame(LIMIT, AMQP_FRAME)
    assert input.feed(first[10_000:] + rest)
    assert input.next_frame(LIMIT, AMQP_FRAME)
    assert input.held() == len(rest)
    assert input.take() == rest
    assert input.held() == 0


def test_input_that_comes_before_earlier_input_is_read_follows_it() -> None:
    sent = [frame(60_000, number) for number in range(4)]
    input = FrameInput()
    input.feed(sent[0][:10_000])
    assert not input.next_frame(LIMIT, AMQP_FRAME)
    assert input.feed(sent[0][10_000:] + sent[1])
    # A pause, during which more arrives.
    input.hold()
    assert input.feed(sent[2])
    input.hold()
    assert input.feed(sent[3])
    assert frames_of(input) == sent
