"""The store: what it has on disk, and backups of it while the broker runs."""

from __future__ import annotations

from typing import Protocol

from ferrymq_broker.management.entity import EntityType
from ferrymq_broker.management.operation import Call, Operation, Result


class StoreKeeper(Protocol):
    """Who has the store."""

    def describe(self) -> dict[str, object]:
        """Its figures, and how the last backup goes."""

    def begin_backup(self, target: str) -> None:
        """Begin to copy it to a directory of this machine. Raises `ManagementError`."""


class StoreEntities(EntityType):
    """The store of the broker, called ``store``; to be found in the default virtual host."""

    short = "store"
    attributes = (
        "name",
        "path",
        "bytes",
        "journal-bytes",
        "records-bytes",
        "pages-bytes",
        "batches",
        "last-batch",
        "applied-batch",
        "alarm",
        "backup",
    )

    def __init__(self, keeper: StoreKeeper) -> None:
        self._keeper = keeper

    def operations(self) -> dict[str, Operation]:
        """READ and BACKUP."""
        return {"READ": Operation(self.read), "BACKUP": Operation(self.backup, ("target",))}

    def identities(self) -> list[str]:
        """Itself."""
        return ["store"]

    def show(self, identity: str) -> dict[str, object] | None:
        """Its figures."""
        return self._keeper.describe() if identity in ("store", "self") else None

    def backup(self, call: Call) -> Result:
        """BACKUP: begin one; READ tells how far it is."""
        call.expect_only("target")
        self.shown(call.required_name())
        self._keeper.begin_backup(call.text("target"))
        return Result(self.shown("store"))
