"""The storage of one sequence: the fuzzer's shelf decides, and the bytes go through a real store.

The shelf says which pages are there and what a fault does. The tasks of the runtime then look up,
read and write the bytes of these pages, in a store of files that checks each value, behind a gate
that hides what the shelf does not have. A store that answers otherwise than the shelf is an error.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from tempfile import TemporaryDirectory

from hicache.core.actions import Fetch, Lookup, StorageAction, Store
from hicache.core.config import Config
from hicache.core.errors import About
from hicache.core.events import StorageReply
from hicache.core.types import Tier
from hicache.memory.stored import stored_pools
from hicache.models.base import ModelDescription
from hicache.runtime.storage import workers
from hicache.runtime.storage.pages import StoredPages
from hicache.runtime.storage.workers import WorkerOptions
from hicache.storage.address import open_store, parse
from hicache.storage.base import Entry, Status, Storage, StorageOptions, Value
from hicache.storage.keys import Context
from invariants.base import Deviation
from invariants.fuzz.content import Content
from invariants.fuzz.shelf import Shelf, Way

from .memory import Memory

_OPTIONS = WorkerOptions(batch_bytes=1 << 14, batch_keys=16)


class Gate(Storage):
    """A store without the keys in `hidden`."""

    def __init__(self, store: Storage) -> None:
        self.store = store
        self.hidden: frozenset[str] = frozenset()

    def lookup(self, keys: Sequence[str]) -> list[bool | None]:
        found = self.store.lookup(keys)
        return [there and key not in self.hidden for key, there in zip(keys, found, strict=True)]

    def read(self, keys: Sequence[str], values: Sequence[Value]) -> list[Status]:
        shown = [at for at, key in enumerate(keys) if key not in self.hidden]
        found = self.store.read([keys[at] for at in shown], [values[at] for at in shown])
        every = [Status.MISSING] * len(keys)
        for at, status in zip(shown, found, strict=True):
            every[at] = status
        return every

    def write(self, keys: Sequence[str], values: Sequence[Value]) -> list[Status]:
        return self.store.write(keys, values)

    def delete(self, keys: Sequence[str]) -> list[Status]:
        return self.store.delete(keys)

    def entries(self, prefix: str) -> Iterator[Entry]:
        return self.store.entries(prefix)

    def stats(self) -> dict[str, int | float | str]:
        return self.store.stats()

    def close(self) -> None:
        self.store.close()


class StoredShelf(Shelf):
    """A shelf whose pages have bytes. stored, fetched: pages that were written and read."""

    def __init__(self, config: Config, model: ModelDescription, memory: Memory, name: str) -> None:
        """name: of the model, in keys."""
        super().__init__(config)
        self.stored = self.fetched = 0
        self._memory = memory
        context = Context(name, "", config.page_size, "tokens", model.pools)
        self._places = StoredPages(context, stored_pools(memory.arena))
        self._with_bytes = all(self._places.keys(one, [bytes(32)]) for one in config.components)
        staged = max(_OPTIONS.batch_bytes, self._places.largest_bytes)
        self._staging = None if self._places.in_place else memoryview(bytearray(staged))
        self._folder: TemporaryDirectory[str] | None = None
        self._gate: Gate | None = None

    def begin(self, action: StorageAction, content: Content | None) -> None:
        super().begin(action, content)
        if isinstance(action, Fetch):
            for piece in action.pieces:
                self._memory.spoil(Tier.HOST, piece.component, piece.pages)

    def reply(
        self, action: StorageAction, kind: Way, now: int, content: Content | None
    ) -> StorageReply:
        if isinstance(action, Lookup) and kind.fine and now >= self.dead_until:
            work = self._work((name, digest) for name in self.names for digest in action.digests)
            workers.look_up(work, action)
            found = self.found(action.digests, action.trailing_pages, action.known_pages)
            self._compare(action, "pages found", found, work.progress)
        return super().reply(action, kind, now, content)

    def _fetched(self, action: Fetch, content: Content | None) -> int:
        work = self._work(
            (piece.component, digest) for piece in action.pieces for digest in piece.digests
        )
        workers.fetch(work, action)
        arrived = super()._fetched(action, content)
        self.fetched += arrived
        self._compare(action, "pages read", arrived, work.progress)
        return arrived

    def _stored(self, action: Store, kind: Way, works: bool, content: Content | None) -> int:
        said = super()._stored(action, kind, works, content)
        kept = _first(action, kind.kept(said))
        count = sum(len(piece.digests) for piece in kept.pieces)
        if count:
            work = self._work(())
            workers.store(work, kept)
            self.stored += count
            self._compare(action, "pages written", count, work.progress)
        return said

    def _work(self, asked: Iterable[tuple[str, bytes]]) -> workers.Task:
        """A task that sees of the pages that it is about to ask for those on the shelf."""
        if self._gate is None:
            self._folder = self._folder or TemporaryDirectory(prefix="hicache-prove-")
            address = parse(f"file:{self._folder.name}/store")
            self._gate = Gate(open_store(address, StorageOptions(), lambda: 0.0, lambda _: None))
        hidden = {
            key
            for name, digest in asked
            if (self.names.index(name), digest) not in self.values
            for keys in self._places.keys(name, [digest])
            for key in keys
        }
        self._gate.hidden = frozenset(hidden)
        changed = threading.Condition()
        task = workers.Task(None, self._gate, self._places, _OPTIONS, changed, lambda: 0.0)
        task.staging = self._staging
        return task

    def _compare(self, action: StorageAction, what: str, expected: int, found: int) -> None:
        if found < expected or (found > expected and self._with_bytes):
            raise Deviation(
                "STORED",
                f"STORED: A store has what was written to it.\n    {type(action).__name__} "
                f"{action.flight}: expected {expected} {what}, found {found}",
                About("flight", action.flight),
            )

    def restart(self) -> None:
        """Closes the store and opens it again, as another process does."""
        if self._gate is not None:
            self._gate.close()
            self._gate = None

    def close(self) -> None:
        self.restart()
        if self._folder is not None:
            self._folder.cleanup()


def _first(action: Store, pages: int) -> Store:
    """The store of the first pages of an action only."""
    pieces = []
    for piece in action.pieces:
        count = min(len(piece.digests), pages)
        pages -= count
        if count:
            pieces.append(piece._replace(digests=piece.digests[:count], pages=piece.pages[:count]))
    return action._replace(pieces=tuple(pieces))
