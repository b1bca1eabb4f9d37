"""The store: its figures, and online backups."""

from __future__ import annotations

from typing import Protocol

from ferrymq_broker.management.entity import EntityType
from ferrymq_broker.management.operation import Call, Operation, Result


class StoreKeeper(Protocol):
    """An object with a store."""

    def describe(self) -> dict[str, object]:
        """Return the figures of the store, and the state of the last backup."""

    def begin_backup(self, target: str) -> None:
        """Begin to copy the store to a directory of this machine. Raises `ManagementError`."""


class StoreEntities(EntityType):
    """The store of the broker, with the name ``store``, in the default virtual host."""

    short = "store"
    attributes: tuple[str, ...] = (
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
        """Return READ and BACKUP."""
        return {"READ": Operation(self.read), "BACKUP": Operation(self.backup, ("target",))}

    def identities(self) -> list[str]:
        """Return the only identity."""
        return ["store"]

    def show(self, identity: str) -> dict[str, object] | None:
        """Return the figures of the store."""
        return self._keeper.describe() if identity in ("store", "self") else None

    def backup(self, call: Call) -> Result:
        """Handle BACKUP: begin a backup. READ returns its progress."""
        call.expect_only("target")
        self.shown(call.required_name())
        self._keeper.begin_backup(call.text("target"))
        return Result(self.shown("store"))
