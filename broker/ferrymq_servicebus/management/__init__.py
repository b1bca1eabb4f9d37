"""Requests about one entity, at ``<entity>/$management``: locks, deferred and scheduled messages,
sessions, rules. `service.entity_service` makes the node; each group of operations is a module."""

from __future__ import annotations

from ferrymq_servicebus.management.entity_management import entity_service

__all__ = ["entity_service"]
