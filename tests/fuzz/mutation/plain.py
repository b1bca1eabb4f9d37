"""Changes to bytes and to text that know nothing of what these mean."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

# Sizes, counts and numbers at which something may change.
NUMBERS = (0, 1, 2, 7, 8, 127, 128, 255, 256, 511, 512, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1)


def mutate_bytes(random: Random, data: bytes, pieces: Sequence[bytes] = ()) -> bytes:
    """One to four small changes; `pieces` are what may be put in."""
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        at = random.randrange(len(changed) + 1)
        what = random.randrange(8)
        if what == 0 and pieces:
            changed[at:at] = random.choice(pieces)
        elif what == 1:
            changed[at:at] = random.randbytes(random.choice((1, 1, 2, 4, 16)))
        elif what == 2:
            del changed[at : at + random.choice((1, 1, 2, 4, 16))]
        elif what == 3:
            start = random.randrange(len(changed) + 1)
            changed[at:at] = changed[start : start + random.choice((1, 4, 16, 64))]
        elif what == 4:
            number = random.choice(NUMBERS)
            size = random.choice((1, 2, 4, 8))
            changed[at : at + size] = (number & (256**size - 1)).to_bytes(size, "big")
        elif at < len(changed):
            if what == 5:
                changed[at] ^= 1 << random.randrange(8)
            elif what == 6:
                changed[at] = random.randrange(256)
            else:
                changed[at] = (changed[at] + random.choice((-1, 1))) & 255
    return bytes(changed)


def mutate_text(random: Random, data: bytes, words: Sequence[bytes]) -> bytes:
    """Words and lines put in, taken out, doubled and exchanged; now and then a byte."""
    if random.random() < 0.2:
        return mutate_bytes(random, data, words)
    line = b"\n" in data and random.random() < 0.5
    between = b"\n" if line else b" "
    parts = data.split(between)
    for _ in range(random.choice((1, 1, 2, 3))):
        at = random.randrange(len(parts) + 1)
        what = random.randrange(6)
        if what < 2:
            parts.insert(at, random.choice(words))
        elif what == 2 and len(parts) > 1:
            parts.pop(random.randrange(len(parts)))
        elif what == 3:
            parts.insert(at, random.choice(parts))
        elif what == 4:
            parts[random.randrange(len(parts))] = random.choice(words)
        else:
            start = random.randrange(len(parts))
            repeated = parts[start : start + random.choice((1, 2, 3))]
            parts[at:at] = repeated * random.choice((1, 2, 20))
        if not parts:
            parts = [b""]
    return between.join(parts)
