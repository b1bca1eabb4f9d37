"""The plan of a replay, which is written before the first record is sent."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

from pyspark_ferrymq.errors import AmqpOptionError, AmqpSourceError

_FILE: Final = "plan.json"
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Plan:
    """The `partitions` of a stream that are sent to `target` in steps of `step` records. Each has
    its first offset, and the offset after its last record. `run` is the name of the run."""

    run: str
    stream: str
    target: str
    annotate: bool
    step: int
    partitions: Mapping[int, tuple[int, int]]

    @classmethod
    def make(
        cls, what: tuple[str, str, bool], partitions: Mapping[int, tuple[int, int]], step: int
    ) -> Plan:
        """Make a new plan. `what` is stream, target, and whether messages are annotated."""
        stream, target, annotate = what
        return cls(f"replay-{uuid4()}", stream, target, annotate, step, dict(partitions))

    @classmethod
    def load(cls, checkpoint: str, what: tuple[str, str, bool]) -> Plan | None:
        """Load the plan in a directory; return None if there is none.

        Raises `AmqpOptionError` if it is for another replay, or is not a plan.
        """
        from pyarrow import fs

        system, path = _place(checkpoint)
        file = f"{path}/{_FILE}"
        if system.get_file_info(file).type == fs.FileType.NotFound:
            return None
        try:
            with system.open_input_stream(file) as stream:
                found = json.loads(stream.read())
            if found["v"] != _VERSION:
                raise ValueError(f"of version {found['v']}")
            plan = cls(
                run=found["run"],
                stream=found["stream"],
                target=found["target"],
                annotate=found["annotate"],
                step=found["step"],
                partitions={
                    int(number): (int(first), int(next))
                    for number, (first, next) in found["partitions"].items()
                },
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise AmqpOptionError(
                f"--checkpoint {checkpoint}: {_FILE} is not a plan: {error}"
            ) from None
        if (plan.stream, plan.target, plan.annotate) != what:
            raise AmqpOptionError(
                f"--checkpoint {checkpoint}: the directory belongs to a replay of {plan.stream!r}"
                f" to {plan.target!r}{'' if plan.annotate else ', not annotated'}; take another"
                " directory for another replay"
            )
        return plan

    def save(self, checkpoint: str) -> None:
        """Write the plan completely or not at all. Raises `AmqpSourceError`."""
        system, path = _place(checkpoint)
        found = {
            "v": _VERSION,
            "run": self.run,
            "stream": self.stream,
            "target": self.target,
            "annotate": self.annotate,
            "step": self.step,
            "partitions": {str(number): list(pair) for number, pair in self.partitions.items()},
        }
        try:
            system.create_dir(path)
            with system.open_output_stream(f"{path}/_tmp-{_FILE}") as stream:
                stream.write(json.dumps(found, indent=1).encode())
            system.move(f"{path}/_tmp-{_FILE}", f"{path}/{_FILE}")
        except OSError as error:
            raise AmqpSourceError(f"--checkpoint {checkpoint}: {error}") from None

    @property
    def count(self) -> int:
        """The number of records in the range."""
        return sum(next - first for first, next in self.partitions.values())

    def steps(self) -> Iterator[dict[int, tuple[int, int]]]:
        """Yield the parts that are sent together, each with all partitions."""
        each = max(1, self.step // max(1, len(self.partitions)))
        longest = max((next - first for first, next in self.partitions.values()), default=0)
        for begun in range(0, longest, each):
            yield {
                number: (min(first + begun, next), min(first + begun + each, next))
                for number, (first, next) in self.partitions.items()
            }


def _place(checkpoint: str) -> tuple[Any, str]:
    from pathlib import Path

    from pyarrow import fs

    if "://" in checkpoint:
        found: tuple[Any, str] = fs.FileSystem.from_uri(checkpoint)
        return found
    return fs.LocalFileSystem(), str(Path(checkpoint).absolute())
