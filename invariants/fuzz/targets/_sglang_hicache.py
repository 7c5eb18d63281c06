"""This project's backend below SGLang's host tier, over a real folder of values.

Real are `hicache.sglang`, the verified file store, and what SGLang has above it. The faults of a
sequence are faults of the store, by calls of another process: a flipped bit, and a folder
that is emptied. Judged is that each page that is read has the contents that were written under
its key, that none is lost without a fault, and (by Storage) that each look-up finds what is there.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

from sglang.srt.mem_cache.hicache_storage import PoolName

from hicache.sglang.backend import HicacheStorage
from hicache.storage.address import open_storage, parse
from hicache.storage.base import Status, StorageOptions, listening
from hicache.storage.checksummed import HEADER_BYTES
from invariants.fuzz.target import need
from invariants.fuzz.targets._sglang_storage import Storage


class Kept(HicacheStorage):
    """The backend, with a look at what it is asked and what it answers."""

    folder: ClassVar[Any] = None  # the Folder that it belongs to

    def __init__(self, storage_config: Any, options: Any = None) -> None:
        """With a clock that stands still, so that no call is ever called slow."""
        super().__init__(storage_config, options)
        self.store.store._now = float  # type: ignore[attr-defined]

    def batch_exists(self, keys: Any, extra_info: Any = None) -> int:
        Kept.folder.damage(self, "kv", keys)
        hit = super().batch_exists(keys)
        Kept.folder.judge_hit(hit, keys, ())
        return hit

    def batch_exists_v2(self, keys: Any, pool_transfers: Any = None, extra_info: Any = None) -> Any:
        result = super().batch_exists_v2(keys, pool_transfers)
        Kept.folder.judge_hit(result.kv_hit_pages, keys, pool_transfers or ())
        return result

    def _get(self, name: str, keys: Any, slots: Any) -> list[bool]:
        Kept.folder.damage(self, name, keys)
        hits = super()._get(name, keys, slots)
        host, rows = Kept.folder.rows(PoolName(name), keys, slots)
        for (key, own), hit in zip(rows, hits, strict=True):
            Kept.folder.judge(Kept.folder.read, PoolName(name), key, host, own, hit)
        return hits

    def _set(self, name: str, keys: Any, slots: Any) -> list[bool]:
        Kept.folder.damage(self, name, keys)
        host, rows = Kept.folder.rows(PoolName(name), keys, slots)
        with listening() as reasons:
            done = super()._set(name, keys, slots)
        text = f"{name}: the store does not take a page: {', '.join(reasons) or 'no reason'}"
        Kept.folder.judge(need, all(done) or not rows, "MATCH", text, f"store refuses {name}")
        for key, own in rows:
            Kept.folder.judge(Kept.folder.stored, PoolName(name), key, host, own)
        return done


class Folder(Storage):
    """What is in the folder. hurt: pages of which a bit was flipped, by pool and key."""

    kind = Kept

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.place = TemporaryDirectory(prefix="hicache-fuzz-")
        self.hurt = set[Any]()
        self.faults = 0
        self.address = f"file:{self.place.name}"
        self.options = {"storage": self.address, "weights": "none"}  # type: ignore[misc]
        Kept.folder = self

    def close(self) -> None:
        self.cache.cache_controller.storage_backend.close()
        self.place.cleanup()

    def damage(self, backend: Any, name: str, keys: Sequence[str]) -> None:
        """What another process does to the store before a call: the fault that is due."""
        if not self.fault or not keys:
            return
        self.faults += 1
        if self.fault != "raise":
            for path in Path(self.place.name).iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            self.pages.clear()
            self.hurt.clear()
            return
        key, place = keys[self.faults % len(keys)], backend.pools[name]
        store = open_storage(parse(self.address), StorageOptions())
        value = bytearray(HEADER_BYTES + place.page_bytes)
        if store.read(place.keys([key]), [(memoryview(value),)]) == [Status.DONE]:
            value[37 * self.faults % len(value)] ^= 1 << self.faults % 8
            store.write(place.keys([key]), [(memoryview(value),)])
            self.hurt.add((PoolName(name), key))
        store.close()

    def judge_hit(self, hit: int, keys: Sequence[str], transfers: Sequence[Any]) -> None:
        there = self.there(keys, transfers).kv_hit_pages
        text = f"a look-up finds {hit} pages, the store has {there}"
        self.judge(need, hit == there, "MATCH", text, "store hit")

    def read(self, name: Any, key: str, host: Any, slots: Any, hit: bool) -> None:
        page, hurt = self.pages.get((name, key)), (name, key) in self.hurt
        if not hit:
            self.pages.pop((name, key), None)
            self.hurt.discard((name, key))
            text = f"{name}: a page that was stored cannot be read"
            need(page is None or hurt, "MATCH", text, f"store loses {name}")
            return
        host.promise[slots] = host.content[slots]
        self.on_loan(host, slots, "read of the store")
        right = page is not None and not hurt and (host.content[slots] == page).all()
        text = f"{name}: a page is read that was not stored, or whose bytes are not those stored"
        need(right, "BYTES", text, f"store bytes {name}")
