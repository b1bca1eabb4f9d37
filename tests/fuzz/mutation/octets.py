"""Changes of octets, for formats whose structure is in their sizes."""

from __future__ import annotations

from random import Random

_TELLING = (0, 1, 2, 0x7F, 0x80, 0xCE, 0xFF, *b"FASxtbBsuIilLfdDTVU")


def mutate_octets(random: Random, data: bytes) -> bytes:
    """Change, insert, repeat or remove some octets."""
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 4))):
        at = random.randrange(len(changed) + 1)
        kind = random.randrange(4)
        if kind == 0 and at < len(changed):
            changed[at] = random.choice((*_TELLING, random.randrange(256)))
        elif kind == 1:
            changed.insert(at, random.choice(_TELLING))
        elif kind == 2:
            piece = changed[at : at + random.choice((1, 2, 4, 8))]
            changed[at:at] = piece
        else:
            del changed[at : at + random.choice((1, 2, 4))]
    return bytes(changed)
