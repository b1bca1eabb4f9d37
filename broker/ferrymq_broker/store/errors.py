"""What can be wrong with a store."""

from __future__ import annotations


class StoreError(Exception):
    """The store cannot be used. The text says which, where, why, and what to do."""


class StoreDamaged(StoreError):
    """Something in the store is not what was written there."""


class StoreLocked(StoreError):
    """Another process uses the store."""


class StoreVersionError(StoreError):
    """The store was written by another version."""
