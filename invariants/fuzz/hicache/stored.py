"""A storage with real bytes: the threads of the runtime carry out every action, on host pools in
memory and a store of files in a folder of its own, whose calls fail, end short or bring damaged
values. The simulated shelf is the model: replies and the bytes of every fetched page must be as it
says.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from hashlib import blake2b
from tempfile import TemporaryDirectory
from typing import Any

from hicache.core.actions import Fetch, Lookup, StorageAction, Store
from hicache.core.components.base import residency
from hicache.core.config import Config
from hicache.core.errors import About
from hicache.core.events import StorageReply
from hicache.core.types import Tier
from hicache.memory.arena import Arena
from hicache.memory.layouts import LAYOUTS
from hicache.memory.stored import StoredPool, stored_pools
from hicache.models import ModelDescription, mha
from hicache.runtime.storage.pages import StoredPages
from hicache.runtime.storage.workers import WorkerOptions, Workers
from hicache.storage.address import open_storage, parse
from hicache.storage.base import Entry, Status, Storage, StorageOptions, Value
from hicache.storage.keys import Context
from hicache.storage.verified import Verified
from invariants.fuzz.draws import Draws
from invariants.fuzz.hicache.shelf import Shelf, WrongContent
from sim.errors import StuckError

PATIENCE_S = 300.0  # for a thread, which takes milliseconds
DAMAGED = 12  # percent of the fetches that meet a damaged value


class Faulty(Storage):
    """A store that does nothing while it is `dead`. refused: reads and writes of these keys fail.
    damaged: what is read of these keys has a wrong bit."""

    def __init__(self, store: Storage) -> None:
        self.store = store
        self.dead = False
        self.refused: set[str] = set()
        self.damaged: set[str] = set()

    def lookup(self, keys: Sequence[str]) -> list[bool | None]:
        return [None] * len(keys) if self.dead else self.store.lookup(keys)

    def read(self, keys: Sequence[str], values: Sequence[Value]) -> list[Status]:
        statuses = self.store.read(keys, values)
        for at, key in enumerate(keys):
            if self.dead or key in self.refused:
                statuses[at] = Status.FAILED
            elif key in self.damaged and statuses[at] is Status.DONE:
                values[at][-1][-1] ^= 1
        return statuses

    def write(self, keys: Sequence[str], values: Sequence[Value]) -> list[Status]:
        return [
            Status.FAILED
            if self.dead or key in self.refused
            else self.store.write([key], [value])[0]
            for key, value in zip(keys, values, strict=True)
        ]

    def delete(self, keys: Sequence[str]) -> list[Status]:
        return [Status.FAILED] * len(keys) if self.dead else self.store.delete(keys)

    def entries(self, prefix: str) -> Iterator[Entry]:
        if self.dead:
            raise OSError("dead")
        return self.store.entries(prefix)

    def stats(self) -> dict[str, int | float | str]:
        return self.store.stats()

    def close(self) -> None:
        self.store.close()


class RealShelf(Shelf):
    """A shelf whose actions are carried out for real, too. seed: chooses the layout of host memory
    and the sizes of batches."""

    def __init__(self, config: Config, seed: int) -> None:
        super().__init__(config)
        self._draws = draws = Draws(seed, "store")
        model = _model(config)
        sizes = dict(zip(config.components, config.host_pages, strict=True))
        layout = draws.one(tuple(LAYOUTS))
        self._arena = Arena(model, config.page_size, {Tier.HOST: sizes}, layout=layout)
        self._pools = stored_pools(self._arena)
        context = Context(model.name, "", config.page_size, "tokens", model.pools)
        self._stored = StoredPages(context, self._pools)
        self._folder = TemporaryDirectory(prefix="hicache-fuzz-", ignore_cleanup_errors=True)
        address = parse(f"file:{self._folder.name}")
        self.files = Faulty(open_storage(address, StorageOptions()))
        options = WorkerOptions(
            readers=draws.between(1, 2),
            writers=1,
            batch_bytes=draws.one((1, 600, 1 << 20)),
            batch_keys=draws.one((1, 3, 256)),
            call_s=PATIENCE_S,
            zero_copy=draws.chance(50) and self._stored.in_place,
        )
        self._workers = Workers(
            Verified(self.files), self._stored, time.monotonic, lambda notice: None, options
        )
        self.compared = 0
        self._until(lambda: any(self.files.entries("")), "the description of its pages")

    def lose(self) -> None:
        super().lose()
        self.files.delete([entry.key for entry in self.files.entries("")])

    def close(self) -> None:
        self._workers.close()
        self.files.close()
        self._arena.close()
        self._folder.cleanup()

    def reply(self, action: StorageAction, kind: Any) -> StorageReply:
        """The reply of the model. Raises WrongContent if the threads answer or fetch otherwise."""
        pages = list(self._pages(action)) if isinstance(action, Fetch | Store) else []
        for index, digest, page, _ in pages if isinstance(action, Store) else ():
            for pool in self._pools[self.names[index]]:
                pool.load(page, memoryview(_pattern(pool, digest)))
        store = self.files
        store.dead = not kind.fine
        if isinstance(action, Fetch) and self._draws.chance(DAMAGED):
            spoilt = self._draws.one(pages)
            self.values.discard(spoilt[:2])
            store.damaged = {min(self._keys([spoilt]))}
        model = super().reply(action, kind)
        wanted: int = model[1]
        if isinstance(action, Lookup):
            found = self.found(action.digests, action.trailing_pages, action.known_pages)
            wanted = found if kind.fine else 0
        elif isinstance(action, Fetch):
            end = action.first_page + wanted
            beyond = [one for one in pages if one[3] >= end]
            sure = min(beyond, key=lambda one: one[3], default=None)
            refused = [one for one in beyond if one is sure or self._draws.chance(40)]
            store.refused = self._keys(refused)
            wanted = sure[3] - action.first_page if sure else action.pages
        elif isinstance(action, Store) and kind.kept(wanted) <= wanted:
            store.refused = self._keys(pages[wanted:])
        answer = self._done(action)[1]
        if answer != wanted and not (isinstance(action, Store) and kind.kept(wanted) > wanted):
            raise WrongContent(
                f"the threads of storage answer {answer} to {action}, expected {wanted}",
                About("flight", action.flight),
            )
        if isinstance(action, Fetch):
            end = action.first_page + wanted
            self._look(action.flight, [one for one in pages if one[3] < end])
        store.dead, store.refused, store.damaged = False, set(), set()
        store.delete(sorted(self._keys(one for one in pages if one[:2] not in self.values)))
        return model

    def _keys(self, pages: Iterable[tuple[int, bytes, int, int]]) -> set[str]:
        """Those of these pages, in every pool."""
        return {
            key
            for index, digest, *_ in pages
            for [key] in self._stored.keys(self.names[index], [digest])
        }

    def _done(self, action: StorageAction) -> StorageReply:
        """Has the threads carry out an action, and returns their answer."""
        self._workers.begin([action])
        answers: list[StorageReply] = []

        def answered() -> bool:
            answers.extend(self._workers.poll())
            return bool(answers)

        self._until(answered, str(action))
        return answers[0]

    def _until(self, done: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + PATIENCE_S
        while not done():
            if time.monotonic() > end:
                raise StuckError(f"the threads of storage do not end {what}")
            time.sleep(0.0002)

    def _look(self, flight: int, pages: Sequence[Any]) -> None:
        for index, digest, page, _ in pages:
            for pool in self._pools[self.names[index]]:
                found = bytearray(pool.page_bytes)
                pool.save(page, memoryview(found))
                self.compared += 1
                if found != _pattern(pool, digest):
                    raise WrongContent(
                        f"flight {flight}: host page {page} of {pool.name} has other bytes "
                        "than were stored",
                        About("page", page, int(Tier.HOST), self.names[index]),
                        About("flight", flight),
                    )


def _pattern(pool: StoredPool, digest: bytes) -> bytearray:
    """The bytes of the page of a prefix in a pool."""
    block = blake2b(pool.name.encode() + digest).digest()
    return bytearray((block * (pool.page_bytes // len(block) + 1))[: pool.page_bytes])


def _model(config: Config) -> ModelDescription:
    """A made-up model. Every component has a pool, with the keys of an indexer, and the rows of a
    draft model in the last layer."""
    plain = mha.describe(
        "fuzz",
        "made up: small pools for each component",
        layers=2,
        hidden_size=8,
        vocabulary=8,
        attention_heads=1,
        kv_heads=1,
        head_elements=8,
        parameters=10_000,
    )
    pools = []
    for name in config.components:
        own = replace(plain.pools[0], name=name, component=name)
        if residency(name) == "state":
            own = replace(own, kind="state", parts=("state",), page_rows=1)
        key = replace(own, name=f"{name}-key", kind="indexer", parts=("key",), anchor=name)
        key = replace(key, dtype="fp8", scale_group=8, scale_bytes=4)
        pools += [own, key, replace(own, name=f"{name}-draft", layers=own.layers[-1:], anchor=name)]
    return replace(plain, pools=tuple(pools))
