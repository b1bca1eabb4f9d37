"""A broker that has next to nothing in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ferrymq_broker.config.model import Config
from ferrymq_broker.nodes.paging.pager import Pager, pager_of
from ferrymq_broker.recovery.paged_out import describe_paged_out
from ferrymq_broker.store.changes import Changes
from ferrymq_broker.store.page_store import PageStore
from tests.broker.harness import Network
from tests.broker.stores import ManualStore


class DictPages(PageStore):
    """Pages in a dictionary; `full` lets no more of them come."""

    def __init__(self) -> None:
        self.pages: dict[bytes, bytes] = {}
        self.written = 0
        self.full = False

    def put(self, pairs: Sequence[tuple[bytes, bytes]]) -> None:
        if self.full:
            raise OSError("there is no room")
        assert not any(key in self.pages for key, _ in pairs)
        self.pages.update(pairs)
        self.written += len(pairs)

    def get(self, key: bytes) -> bytes | None:
        return self.pages.get(key)

    def take(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self.pages.pop(key, None) for key in keys]

    def drop(self, keys: Sequence[bytes]) -> None:
        for key in keys:
            del self.pages[key]


class PagedNetwork(Network):
    """Pages out whatever is above `limit` bytes; `least` messages in a row are a run."""

    def __init__(self, *, limit: int = 0, least: int = 2, **options: object) -> None:
        self.limit = limit
        self.least = least
        self.pages = DictPages()
        options.setdefault("store", ManualStore())
        super().__init__(**options)  # type: ignore[arg-type]

    def _start(self, config: Config | None) -> None:
        store = self.store
        assert store is not None
        opened = store.open

        def open_store(changes: Changes, taken: Callable[[], object]) -> None:
            # As the server does it: before anything is recovered.
            opened(changes, taken)
            self.pages = DictPages()
            self.broker.keep(store)
            self.broker.page_out(self.pages, self.limit)
            self.pager.least = self.least
            sweep = self.broker.memory.sweep
            assert sweep is not None
            sweep.period = 0
            sweep.again = 0

        store.open = open_store  # type: ignore[method-assign]
        try:
            super()._start(config)
        finally:
            store.open = opened  # type: ignore[method-assign]

    @property
    def pager(self) -> Pager:
        """What pages out."""
        pager = pager_of(self.broker.agenda)
        assert pager is not None
        return pager

    def stop(self) -> None:
        """Stop the broker in good order; `restart` starts it."""
        for client in list(self.clients):
            client.lose()
        self.settle()
        assert isinstance(self.store, ManualStore)
        self.store.leave(describe_paged_out(self.broker))

    def settle(self) -> None:
        """Let everything go that can."""
        self.finish()
