"""Pages of one of SGLang's host pools in a store: which are there, reads and writes.

A pool has keys of its own context, and a shard: that of its rank, or one of all ranks where they
have the same pages. SGLang asks from several threads at a time. Imports nothing of SGLang.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

import torch

from hicache.core.errors import CallerError
from hicache.runtime.storage import restorable
from hicache.storage.base import Status, Value
from hicache.storage.checksummed import Checksummed
from hicache.storage.keys import Context, context_key, page_keys

_MOST_DELETES = 1024  # keys of one call
# Of one call of a store: a call that takes too long counts as an outage, on a slow disk, too.
_MOST_BYTES = 32 << 20
# Pools of which each rank has a part, also where the keys and values are the same on all.
_PER_RANK = {"mamba", "MHATokenToKVPoolHost", "MHATokenToKOnlyPoolHost", "MambaPoolHost"}


class HostPages:
    """The pages of a pool. form: what the bytes of a page mean, for keys. per_rank: whether every
    rank has pages of its own. `use` comes before anything that asks the store."""

    def __init__(self, name: str, pool: Any) -> None:
        """Raises CallerError for a pool whose pages are no bytes in host memory."""
        self.name, self.pool, self.page_size = name, pool, int(pool.page_size)
        try:
            page = pool.get_data_page(0, flat=False)
            flat = pool.get_data_page(0, flat=True)
        except (AttributeError, NotImplementedError, TypeError) as error:
            raise CallerError(
                f"host pool {name}: expected pages as bytes, found {type(pool).__name__}: "
                f"{str(error)[:120]}; use another storage backend with this model or layout"
            ) from None
        self.page_bytes = flat.numel() * flat.element_size()
        if not self.page_bytes or flat.device.type != "cpu":
            raise CallerError(
                f"host pool {name}: expected pages in host memory, found {self.page_bytes} bytes "
                f"on {flat.device.type}"
            )
        self._flat = flat
        self.form = {
            "pool": name,
            "class": type(pool).__name__,
            "dtype": [str(getattr(pool, "dtype", "")), str(flat.dtype)],
            "layout": str(getattr(pool, "layout", "")),
            "format": str(getattr(pool, "storage_format_tag", None)),
            "page_size": self.page_size,
            "page_bytes": self.page_bytes,
            "shape": list(page.shape),
            "layers": [
                getattr(pool, text, None) for text in ("start_layer", "end_layer", "layer_num")
            ],
        }
        kinds = {name, *(kind.__name__ for kind in type(pool).__mro__)}
        self.per_rank = bool(kinds & _PER_RANK)

    def use(self, store: Checksummed, context: Context, shard: str, *, describes: bool) -> None:
        """The store, and what keys are made of. describes: this rank writes the context's text."""
        self._store, self._context, self._shard = store, context, shard
        if describes:
            text = memoryview(context.text.encode("ascii"))
            store.write([context_key(context.digest)], [(text,)])

    def keys(self, names: Sequence[str]) -> list[str]:
        """The keys of pages that SGLang calls so."""
        digests = [sha256(name.encode()).digest() for name in names]
        return page_keys(self._context.digest, self.name, self._shard, digests)

    def there(self, names: Sequence[str]) -> list[bool]:
        """Whether the store says of each page that it is there."""
        return [item is True for item in self._store.lookup(self.keys(names))]

    def read(self, names: Sequence[str], slots: Any) -> list[bool]:
        """Read pages into the slots of the pool. Whether each is there. Stops after a call that did
        not read everything: SGLang takes what is before a gap."""
        starts, result = self._starts(len(names), slots), list[bool]()
        for part in self._parts(len(starts)):
            pages = [torch.empty_like(self._flat) for _ in part]
            values = [_bytes_of(page) for page in pages]
            done = self._store.read(self.keys([names[at] for at in part]), values)
            arrived = [status is Status.DONE for status in done]
            for at, page, ok in zip(part, pages, arrived, strict=True):
                if ok:
                    self.pool.set_from_flat_data_page(starts[at], page)
            result += arrived
            if not all(arrived):
                break
        return result + [False] * (len(names) - len(result))

    def write(self, names: Sequence[str], slots: Any) -> list[bool]:
        """Write pages from the slots of the pool, if they are not there yet: a page never changes.
        Whether each is there afterwards. Stops after a call that did not write everything, as
        SGLang then does."""
        starts, result = self._starts(len(names), slots), list[bool]()
        for part in self._parts(len(starts)):
            keys = self.keys([names[at] for at in part])
            there = [item is True for item in self._store.lookup(keys)]
            new = [at for at, here in zip(part, there, strict=True) if not here]
            pages = [self.pool.get_data_page(starts[at], flat=True) for at in new]
            values = [_bytes_of(page.contiguous()) for page in pages]
            done = self._store.write([keys[at - part.start] for at in new], values) if new else []
            for at, status in zip(new, done, strict=True):
                there[at - part.start] = status is Status.DONE
            result += there
            if not all(there):
                break
        return result + [False] * (len(names) - len(result))

    def clear(self) -> None:
        """Delete all pages of this rank. Raises OSError if the store cannot be asked."""
        prefix = f"{self._context.digest}/{self.name}/{self._shard}/"
        keys = [entry.key for entry in self._store.entries(prefix)]
        for start in range(0, len(keys), _MOST_DELETES):
            self._store.delete(keys[start : start + _MOST_DELETES])

    def _starts(self, pages: int, slots: Any) -> list[int]:
        """The first slot of each page; none where the number of slots is not theirs."""
        if slots is None or slots.numel() != pages * self.page_size:
            return []
        return [int(slot) for slot in slots[:: self.page_size]]

    def _parts(self, count: int) -> list[range]:
        """The numbers of so many pages, in runs for one call of a store each."""
        step = max(1, _MOST_BYTES // self.page_bytes)
        return [range(start, min(count, start + step)) for start in range(0, count, step)]


def _bytes_of(page: Any) -> Value:
    """The memory of a contiguous tensor."""
    return (page.view(torch.uint8).numpy().reshape(-1).data,)


def prefixes(
    full: int, pools: Mapping[Any, tuple[int, Sequence[bool]]]
) -> tuple[list[int], dict[Any, int]]:
    """The lengths of prefixes, of at most `full` pages, that all pools can restore, and the longest
    one of each pool that has any. pools: how many of its last pages a prefix needs (0: all), and
    which pages are there."""
    lengths = {
        name: restorable(len(there), last, there.__getitem__)
        for name, (last, there) in pools.items()
    }
    every = set(range(1, full + 1)).intersection(*lengths.values())
    return sorted(every), {name: max(ends) for name, ends in lengths.items() if ends}
