"""A difference between two specifications, as `diff` reports it."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Change:
    """Difference between two specs. `where` is a dotted path of the spec's names. `old` and `new`
    are the values there, empty on the side without a value.

    `old_reads_new`, `new_reads_old` and `source` describe the break, and are empty if there is
    none.
    """

    where: str
    what: str
    old: str
    new: str
    old_reads_new: str = ""
    new_reads_old: str = ""
    source: str = ""

    @property
    def breaking(self) -> bool:
        """Whether the change breaks peers, in either direction."""
        return bool(self.old_reads_new or self.new_reads_old)

    def as_dict(self) -> dict[str, str | bool]:
        """Return the change in the form of JSON."""
        return {**asdict(self), "breaking": self.breaking}
