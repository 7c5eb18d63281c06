"""This project's backend below SGLang's host tier, over a real folder of values.

Real are `hicache.sglang`, the verified file store, and what SGLang has above it. The faults of a
sequence are faults of the store, by calls of another process: a flipped byte, deleted values, and a
folder that is gone. Judged is that each page that is read has the contents that were written under
its key, that none is lost without a fault, and (by Storage) that each look-up finds what is there.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import numpy as np
from sglang.srt.mem_cache.hicache_storage import PoolName

from hicache.sglang.backend import HicacheStorage
from hicache.storage.address import open_storage, parse
from hicache.storage.base import Status, StorageOptions, listening
from hicache.storage.verified import HEADER_BYTES
from invariants.fuzz.target import need
from invariants.fuzz.targets._sglang_storage import Storage


class Kept(HicacheStorage):
    """The backend, with a look at what it was asked and what it answered."""

    folder: ClassVar[Any] = None  # the Folder that it belongs to

    def __init__(self, storage_config: Any, options: Any = None) -> None:
        """With a clock that stands still, so that no call is ever called slow."""
        super().__init__(storage_config, options)
        self.shelves.store.store._now = float  # type: ignore[attr-defined]

    def batch_exists(self, keys: Any, extra_info: Any = None) -> int:
        Kept.folder.damage(self, "kv", keys)
        return super().batch_exists(keys, extra_info)

    def _get(self, name: str, keys: Any, slots: Any) -> list[bool]:
        Kept.folder.damage(self, name, keys)
        found = super()._get(name, keys, slots)
        host, pages = Kept.folder.pages_of(name, keys, slots)
        for key, ok, own in zip(keys, found, pages, strict=True):
            Kept.folder.judge(Kept.folder.read, name, key, ok, host.content[own])
            if ok:
                Kept.folder.filled(host, own)
        return found

    def _set(self, name: str, keys: Any, slots: Any) -> list[bool]:
        Kept.folder.damage(self, name, keys)
        host, pages = Kept.folder.pages_of(name, keys, slots)
        for own in pages:
            Kept.folder.judge(Kept.folder.lent, host, own, "write to the store")
        with listening() as heard:
            found = super()._set(name, keys, slots)
        Kept.folder.told_why = heard
        for key, ok, own in zip(keys, found, pages, strict=True):
            Kept.folder.judge(Kept.folder.written, name, key, ok, host.content[own].copy())
        return found

    def batch_get(self, keys: Any, target_locations: Any = None, target_sizes: Any = None) -> Any:
        Kept.folder.damage(self, "kv", keys)
        found = super().batch_get(keys, target_locations)
        for key, page in zip(keys, found, strict=True):
            content = None if page is None else page.numpy()
            Kept.folder.judge(Kept.folder.read, "kv", key, page is not None, content)
        return found

    def batch_set(
        self, keys: Any, values: Any = None, target_locations: Any = None, target_sizes: Any = None
    ) -> bool:
        Kept.folder.damage(self, "kv", keys)
        with listening() as heard:
            done = super().batch_set(keys, values)
        Kept.folder.told_why = heard
        for key, page in zip(keys, values, strict=True):
            Kept.folder.judge(Kept.folder.written, "kv", key, done, page.numpy().copy())
        return done


class Folder(Storage):
    """What is in the folder. hurt: pages of which a byte was flipped, by pool and key."""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.place = TemporaryDirectory(prefix="hicache-peers-")
        self.hurt = set[Any]()
        self.faults = 0
        self.told_why: list[str] = []  # a write failed
        Kept.folder = self
        for host, _ in world.sides.values():
            host.real = self

    @property
    def address(self) -> str:
        return f"file:{self.place.name}"

    def backend(self) -> tuple[type[Any], dict[str, Any]]:
        return Kept, {"storage": self.address, "weights": "none"}

    def close(self) -> None:
        backend = self.controller.storage_backend
        if backend is not None:
            backend.close()
        self.place.cleanup()

    # -- faults

    def damage(self, backend: Any, name: str, keys: Sequence[str]) -> None:
        """What another process does to the store before a call: the fault that is due."""
        if not self.fault or not keys:
            return
        self.faults += 1
        if self.fault == "none":
            for one in Path(self.place.name).iterdir():
                shutil.rmtree(one) if one.is_dir() else one.unlink()
            self.pages.clear()
            self.hurt.clear()
            return
        place = backend.shelves.place(name)
        store = open_storage(parse(self.address), StorageOptions())
        try:
            if self.fault == "raise":
                at = self.faults % len(keys)
                if self._flip(store, place.keys(keys[at : at + 1]), place.pages.page_bytes):
                    self.hurt.add((PoolName(name), keys[at]))
            else:
                store.delete(place.keys(keys[len(keys) // 2 :]))
                for key in keys[len(keys) // 2 :]:
                    self.pages.pop((PoolName(name), key), None)
                    self.hurt.discard((PoolName(name), key))
        finally:
            store.close()

    def _flip(self, store: Any, key: list[str], size: int) -> bool:
        """Whether the value is there, with one bit that is another one now."""
        value = bytearray(HEADER_BYTES + size)
        if store.read(key, [(memoryview(value),)]) != [Status.DONE]:
            return False
        value[37 * self.faults % len(value)] ^= 1 << self.faults % 8
        return bool(store.write(key, [(memoryview(value),)]) == [Status.DONE])

    # -- what is judged

    def pages_of(self, name: str, keys: Sequence[str], slots: Any) -> tuple[Any, Any]:
        """The host pool, and the slots of each page."""
        host = self.world.sides[PoolName(name)][0]
        text = f"{name}: {len(keys)} pages are asked for with other slots"
        fits = slots is not None and slots.numel() == len(keys) * host.page_size
        self.judge(need, fits or not keys, "CONTRACT", text)
        return host, np.array(slots).reshape(-1, host.page_size) if fits else [[]] * len(keys)

    def filled(self, host: Any, slots: Any) -> None:
        """A page was read into these slots."""
        self.judge(self.lent, host, slots, "read of the store")
        host.changes += 1

    def lent(self, host: Any, slots: Any, what: str) -> None:
        self._lent(host, slots, what)

    def read(self, name: str, key: str, done: bool, content: Any) -> None:
        at = PoolName(name), key
        held, hurt = self.pages.get(at), at in self.hurt
        if not done:
            text = f"{name}: a page that was stored cannot be read"
            need(held is None or hurt, "MATCH", text, f"store loses {name}")
            self.pages.pop(at, None)
            self.hurt.discard(at)
            return
        text = f"{name}: a page is read that was not stored, or whose bytes are not those stored"
        right = held is not None and not hurt and (content == held).all()
        need(right, "BYTES", text, f"store bytes {name}")

    def written(self, name: str, key: str, done: bool, content: Any) -> None:
        self._named(PoolName(name), key, content)
        text = f"{name}: the store does not take a page: {', '.join(self.told_why) or 'no reason'}"
        need(done, "MATCH", text, f"store refuses {name}")
        self.pages[PoolName(name), key] = content
