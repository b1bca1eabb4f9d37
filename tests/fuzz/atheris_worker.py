"""One target under atheris, in a process of its own: libFuzzer ends that as it likes.

python -m tests.fuzz.atheris_worker TARGET [libFuzzer's arguments]
"""

from __future__ import annotations

import sys
from random import Random

import atheris

from tests.fuzz.targets import load

_OURS = [
    *("ferrymq", "ferrymq_codec", "ferrymq_codec_0_9_1", "ferrymq_types", "ferrymq_types_0_9_1"),
    "ferrymq_broker",
    "scramp",
]


def main() -> None:
    """Run until the arguments say that it is over, or a fault is found."""
    name = sys.argv[1]
    with atheris.instrument_imports(include=_OURS):
        target = load(name)

    def mutate(data: bytes, max_size: int, seed: int) -> bytes:
        random = Random(seed)
        if random.random() < 0.25:
            return bytes(atheris.Mutate(data, max_size))
        for _ in range(10):
            changed = target.mutate(random, data)
            if len(changed) <= max_size:
                return changed
        return changed[:max_size]

    atheris.Setup([sys.argv[0], *sys.argv[2:]], target.one, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
