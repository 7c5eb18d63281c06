"""Pages of SGLang's host pools in a store: what is there, reads and writes.

A pool has keys of its own context, and a shard: that of its rank, or one of all ranks where they
have the same pages. SGLang asks from several threads at a time. Where a page is a view of the
pool's memory, a store moves bytes from and to that memory; otherwise there is a copy. Imports
nothing of SGLang.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np
import torch

from hicache.core.errors import CallerError
from hicache.storage.base import Status, Value
from hicache.storage.keys import Context, context_key, page_keys, shard
from hicache.storage.verified import Verified

_DIGEST = 64  # hexadecimal digits
_MOST_DELETES = 1024  # keys of one call
# Of one call of a store: a call that takes too long counts as an outage, on a slow disk, too.
_MOST_BYTES = 32 << 20
# Pools of which each rank has a part, also where the keys and values are the same on all.
_PER_RANK = {"mamba", "MHATokenToKVPoolHost", "MHATokenToKOnlyPoolHost", "MambaPoolHost"}


class Room(NamedTuple):
    """Where a page is read to. page: a tensor that the pool takes over, or None: it is there."""

    value: Value
    page: Any


class HostPages:
    """The pages of a pool. in_place: a store can use the pool's memory. form: what the bytes of a
    page mean, for keys."""

    def __init__(self, name: str, pool: Any) -> None:
        """Raises CallerError for a pool whose pages are no bytes that can be had."""
        self.name, self.pool = name, pool
        self.page_size = int(getattr(pool, "page_size", 1) or 1)
        try:
            first, again = (pool.get_data_page(0, flat=False) for _ in range(2))
            flat = pool.get_data_page(0, flat=True)
        except (AttributeError, NotImplementedError, TypeError) as error:
            raise CallerError(
                f"host pool {name}: expected one whose pages can be had as bytes, found "
                f"{type(pool).__name__}: {str(error)[:120] or type(error).__name__}; use another "
                "storage backend with this model or layout"
            ) from None
        self.page_bytes = flat.numel() * flat.element_size()
        if not self.page_bytes or flat.device.type != "cpu":
            raise CallerError(
                f"host pool {name}: expected pages in host memory, found {type(pool).__name__} "
                f"with {self.page_bytes} bytes on {flat.device.type}"
            )
        self.in_place = _is_view(pool, first, again) and first.numel() == flat.numel()
        self.form = {
            "pool": name,
            "class": type(pool).__name__,
            "dtype": [str(getattr(pool, "dtype", "")), str(flat.dtype)],
            "layout": str(getattr(pool, "layout", "")),
            "format": str(getattr(pool, "storage_format_tag", None)),
            "page_size": self.page_size,
            "page_bytes": self.page_bytes,
            "shape": list(first.shape),
            "layers": [
                getattr(pool, one, None) for one in ("start_layer", "end_layer", "layer_num")
            ],
        }
        kinds = {name, *(one.__name__ for one in type(pool).__mro__)}
        self.per_rank = bool(kinds & _PER_RANK)

    def parts(self, count: int) -> list[range]:
        """The numbers of so many pages, in runs for one call of a store each."""
        step = max(1, _MOST_BYTES // self.page_bytes)
        return [range(start, min(count, start + step)) for start in range(0, count, step)]

    def starts(self, keys: int, slots: Any) -> list[int]:
        """The first slot of each page; none where their number is not that of the keys."""
        if slots is None or slots.numel() != keys * self.page_size:
            return []
        return [int(slot) for slot in slots[:: self.page_size]]

    def held(self, start: int) -> Value:
        """The bytes of a page, to be written to a store."""
        if self.in_place:
            return runs(self.pool.get_data_page(start, flat=False))
        return flat_value(self.pool.get_data_page(start, flat=True))

    def room(self, start: int) -> Room:
        """Memory to read a page to; then `arrived`."""
        if self.in_place:
            return Room(runs(self.pool.get_data_page(start, flat=False)), None)
        page = self.pool.get_dummy_flat_data_page().reshape(-1)
        return Room(flat_value(page), page)

    def arrived(self, start: int, room: Room) -> None:
        """What was read is the pool's."""
        if room.page is not None:
            self.pool.set_from_flat_data_page(start, room.page)


def flat_value(page: Any) -> Value:
    """The bytes of a contiguous tensor."""
    array = page.contiguous().view(torch.uint8).numpy().reshape(-1)
    return (array.data,)


def runs(view: Any) -> Value:
    """The bytes of a view in the order of its indices, what is contiguous in one buffer."""
    raw = view.view(torch.uint8)
    shape, strides = raw.shape, raw.stride()
    split, whole = raw.dim(), 1
    while split and (shape[split - 1] == 1 or strides[split - 1] == whole):
        split -= 1
        whole *= shape[split]
    array = raw.numpy()
    return tuple(array[at].reshape(-1).data for at in np.ndindex(*shape[:split]))


def _is_view(pool: Any, first: Any, again: Any) -> bool:
    """Whether a page is the pool's own memory, at a place that stays."""
    if getattr(pool, "shared_allocation_domain", None) is not None:
        return False
    bounds = first.untyped_storage().data_ptr(), again.untyped_storage().data_ptr()
    return bounds[0] == bounds[1] and bool(first.stride() and first.stride(-1) == 1)


class Wanted(NamedTuple):
    """What a pool needs of a prefix. last: pages from its end; 0: all. unknown: a policy that is
    not known here, so no prefix will do."""

    name: str
    last: int = 0
    unknown: bool = False


class Found(NamedTuple):
    """pages: the longest prefix that all pools can restore. longest: for each pool the longest one
    that it can, where there is one. every: all lengths that all pools can restore."""

    pages: int
    longest: dict[str, int]
    every: list[int]


def ends(wanted: Wanted, there: Sequence[bool]) -> list[int]:
    """The lengths of prefixes that a pool can restore. there: its pages of the chain."""
    if wanted.unknown:
        return []
    found, run = [], 0
    for end, here in enumerate(there, 1):
        run = run + 1 if here else 0
        if run >= min(end, wanted.last or end):
            found.append(end)
    return found


def restorable(
    anchor: str, full: int, wanted: Sequence[Wanted], there: Sequence[Sequence[bool]]
) -> Found:
    """anchor: the pool of keys and values, which has the first `full` pages. there: of each other
    pool, the pages among these."""
    longest = {anchor: full} if full else {}
    every = list(range(1, full + 1))
    for one, pages in zip(wanted, there, strict=True):
        lengths = ends(one, pages)
        if lengths:
            longest[one.name] = lengths[-1]
        known = set(lengths)
        every = [length for length in every if length in known]
    return Found(every[-1] if every else 0, longest, every)


class Rank(NamedTuple):
    """One rank of tensor and of pipeline parallelism. replicated: all ranks of a stage have the
    same keys and values, as with MLA."""

    rank: int = 0
    ranks: int = 1
    stage: int = 0
    stages: int = 1
    replicated: bool = False


class Place(NamedTuple):
    """Where the pages of a pool are in the store."""

    pages: HostPages
    context: Context
    shard: str

    def keys(self, names: Sequence[str]) -> list[str]:
        """The keys of pages that SGLang calls so: SHA-256 in hexadecimal."""
        return page_keys(
            self.context.digest, self.pages.name, self.shard, [_digest(name) for name in names]
        )


class Shelves:
    """The pools of one rank in a store. context_of: the context of a pool's pages."""

    def __init__(
        self,
        store: Verified,
        rank: Rank,
        context_of: Callable[[Mapping[str, Any]], Context],
    ) -> None:
        self.store, self.rank, self._context_of = store, rank, context_of
        self._places: dict[str, Place] = {}
        self.closed = False

    def register(self, name: str, pool: Any) -> None:
        """The pages of a pool may be asked for. Raises CallerError for one that has none."""
        pages = HostPages(name, pool)
        at = self.rank
        shared = at.replicated and not pages.per_rank
        place = Place(pages, self._context_of(pages.form), shard(*at[:4], shared=shared))
        if at.rank == 0:
            text = memoryview(place.context.text.encode("ascii"))
            self.store.write([context_key(place.context.digest)], [(text,)])
        self._places[name] = place

    def knows(self, name: str) -> bool:
        return name in self._places

    def place(self, name: str) -> Place:
        """Where the pages of a registered pool are."""
        return self._places[name]

    # -- what is there

    def there(self, name: str, names: Sequence[str]) -> list[bool]:
        """Whether each page is there; one of which the store does not say counts as not."""
        return [one is True for one in self.store.lookup(self._places[name].keys(names))]

    def prefix(self, name: str, names: Sequence[str]) -> int:
        """How many pages are there, from the first on."""
        found = self.there(name, names)
        return found.index(False) if False in found else len(found)

    # -- pages

    def get(self, name: str, names: Sequence[str], slots: Any) -> list[bool]:
        """Read pages into the slots of a host pool. Whether each is there; what the slots of
        another hold is not defined. Stops after a call that did not read everything: SGLang takes
        what is before a gap."""
        place = self._places[name]
        pages, starts, found = place.pages, place.pages.starts(len(names), slots), list[bool]()
        for part in pages.parts(len(starts)):
            rooms = [pages.room(starts[at]) for at in part]
            keys, values = place.keys([names[at] for at in part]), [one.value for one in rooms]
            arrived = [one is Status.DONE for one in self.store.read(keys, values)]
            for at, room, ok in zip(part, rooms, arrived, strict=True):
                if ok:
                    pages.arrived(starts[at], room)
            found += arrived
            if not all(arrived):
                break
        return found + [False] * (len(names) - len(found))

    def set(self, name: str, names: Sequence[str], slots: Any) -> list[bool]:
        """Write pages from the slots of a host pool, if they are not there yet: a page never
        changes. Whether each is there afterwards. Stops after a call that did not write everything,
        as SGLang then does."""
        place = self._places[name]
        pages, starts, found = place.pages, place.pages.starts(len(names), slots), list[bool]()
        for part in pages.parts(len(starts)):
            keys = place.keys([names[at] for at in part])
            there = [one is True for one in self.store.lookup(keys)]
            new = [at for at, one in enumerate(there) if not one]
            values = [pages.held(starts[part[at]]) for at in new]
            done = self.store.write([keys[at] for at in new], values) if new else []
            for at, status in zip(new, done, strict=True):
                there[at] = status is Status.DONE
            found += there
            if not all(there):
                break
        return found + [False] * (len(names) - len(found))

    # -- the store

    def clear(self) -> int:
        """Delete what the store has of the pools of this rank. Returns how many pages. Raises
        OSError if the store cannot be asked."""
        gone = 0
        for place in self._places.values():
            prefix = f"{place.context.digest}/{place.pages.name}/{place.shard}/"
            keys = [one.key for one in self.store.entries(prefix)]
            for start in range(0, len(keys), _MOST_DELETES):
                done = self.store.delete(keys[start : start + _MOST_DELETES])
                gone += done.count(Status.DONE)
        return gone

    @property
    def figures(self) -> dict[str, int | float]:
        """Figures since the store was opened."""
        losses = self.store.losses
        return {
            "corrupt": self.store.corrupt,
            "writes_refused": losses.writes_refused,
            "outages": losses.outages + losses.write_outages,
            "waited_s": losses.waited_s,
        }

    def close(self) -> None:
        """Idempotent."""
        if not self.closed:
            self.closed = True
            self.store.close()


def _digest(name: str) -> bytes:
    if len(name) == _DIGEST:
        try:
            return bytes.fromhex(name)
        except ValueError:
            pass
    return sha256(name.encode()).digest()
