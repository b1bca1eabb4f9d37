"""Errors of the store."""

from __future__ import annotations


class StoreError(Exception):
    """The store cannot be used. The text says which store, where, why, and what to do."""


class StoreDamaged(StoreError):
    """Content of the store differs from what was written."""


class StoreLocked(StoreError):
    """Another process uses the store."""


class StoreVersionError(StoreError):
    """The store was written by another version."""
