"""The other workers of a broker, as management asks them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

FIGURES: Final = "figures"
SAMPLES: Final = "samples"
DEFINITIONS: Final = "definitions"
"""The names of questions: the figures of a worker, the samples of its last seconds, and the
definitions of its virtual hosts."""


class Answers(Protocol):
    """Answers of other workers, which come in within a bounded time."""

    @property
    def over(self) -> bool:
        """Whether there are no more to wait for."""

    @property
    def found(self) -> Mapping[int, Any]:
        """The answers by the number of the worker; without those of workers that do not answer."""


class OtherWorkers(Protocol):
    """The other workers of a broker."""

    @property
    def numbers(self) -> list[int]:
        """Their numbers."""

    def ask(self, question: str, content: object = None, number: int | None = None) -> Answers:
        """Ask all, or one of them. `content` is something that JSON has."""
