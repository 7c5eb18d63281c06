"""A real store behind a simulated cache: what is written and read are small values on a real store.

A page of a simulation has no bytes of its own, so its value stands for it: the digest of the page,
repeated up to a length in proportion to the page's size. The keys are those of real pages, under a
context of their own: its revision names the workload, whose numbers of blocks mean nothing beside
it, and all of the model, so that no engine takes them for pages of its model. A component that has
several pools has a value for each.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from hicache.models import ModelDescription
from hicache.storage.base import Losses, Status, Storage
from hicache.storage.keys import Context, context_key, page_keys, shard
from hicache.storage.verified import HEADER_BYTES

from .contents import Contents

REVISION = "simulated"  # begins the revision of every context of a simulation
UNIT_BYTES = 4096  # of the smallest value, with its header: a block of most disks
_MOST_UNITS = 16


def context_of(
    model: ModelDescription, page_size: int, rows: str, workload: str, ranks: int
) -> Context:
    """The context under which a simulation of this model stores its pages. workload: a digest of
    everything that says what the number of a block stands for. ranks: that share a page."""
    of_model = json.dumps(asdict(model), sort_keys=True)
    whole = "\x1f".join((workload, model.weight_dtype, str(ranks), of_model))
    revision = f"{REVISION};{hashlib.sha256(whole.encode()).hexdigest()}"
    return Context(model.name, revision, page_size, rows, model.pools)


def scaled(value_bytes: Mapping[str, int]) -> dict[str, int]:
    """Bytes of the value that stands for a page, by component, with its header: one unit for the
    smallest, and as many times that as its page is larger, at most 16."""
    least = min(value_bytes.values())
    return {
        name: min(_MOST_UNITS, max(1, round(size / least))) * UNIT_BYTES
        for name, size in value_bytes.items()
    }


def scaled_size(size_bytes: int, value_bytes: Mapping[str, int]) -> int:
    """Bytes in which a store holds as many values as `size_bytes` would hold pages."""
    return size_bytes // min(value_bytes.values()) * UNIT_BYTES


class StoredContents(Contents):
    """See the module. store: with verified values. value_bytes: of a real value, by component."""

    def __init__(
        self,
        store: Storage,
        context: Context,
        model: ModelDescription,
        value_bytes: Mapping[str, int],
        tp: int,
    ) -> None:
        self._store = store
        self._context = context
        self._digest = context.digest
        self._places = {
            name: [
                (pool.name, shard(0, tp, shared=pool.replicated))
                for pool in model.pools_of(name)
                if pool.kind != "logical"
            ]
            for name in value_bytes
        }
        self._lengths = {name: size - HEADER_BYTES for name, size in scaled(value_bytes).items()}
        self._has_context = False
        self._closed, self._evicted = False, 0

    def lookup(self, component: str, digests: Sequence[bytes]) -> list[bool | None]:
        found: list[bool | None] = [True] * len(digests)
        for keys in self._keys(component, digests):
            found = [a and b for a, b in zip(found, self._store.lookup(keys), strict=True)]
        return found

    def read(self, component: str, digests: Sequence[bytes]) -> list[Status]:
        found = [Status.DONE] * len(digests)
        length = self._lengths[component]
        for keys in self._keys(component, digests):
            buffers = [bytearray(length) for _ in keys]
            statuses = self._store.read(keys, [(memoryview(buffer),) for buffer in buffers])
            for place, (digest, buffer) in enumerate(zip(digests, buffers, strict=True)):
                status = statuses[place]
                if status is Status.DONE and bytes(buffer) != _value(digest, length):
                    status = Status.CORRUPT
                if found[place] is Status.DONE:
                    found[place] = status
        return found

    def write(self, component: str, digests: Sequence[bytes]) -> list[Status]:
        found = [Status.DONE] * len(digests)
        self._write_context()
        values = [(memoryview(_value(one, self._lengths[component])),) for one in digests]
        for keys in self._keys(component, digests):
            for place, status in enumerate(self._store.write(keys, values)):
                if found[place] is Status.DONE:
                    found[place] = status
        return found

    def clear(self) -> bool:
        keys = [entry.key for entry in self._store.entries(f"{self._digest}/")]
        gone = (Status.DONE, Status.MISSING)
        self._has_context = False
        return all(status in gone for status in self._store.delete(keys))

    @property
    def losses(self) -> Losses:
        return self._store.losses

    @property
    def evicted(self) -> int:
        if not self._closed:
            self._evicted = int(self._store.stats().get("evicted", 0))
        return self._evicted

    def close(self) -> None:
        self._evicted, self._closed = self.evicted, True
        self._store.close()

    def _keys(self, component: str, digests: Sequence[bytes]) -> list[list[str]]:
        """The keys of these pages in each pool of the component."""
        if not digests:
            return []
        places = self._places[component]
        return [page_keys(self._digest, pool, part, digests) for pool, part in places]

    def _write_context(self) -> None:
        """Writes once what the context's digest stands for, for people who look at the store."""
        if not self._has_context:
            text = memoryview(self._context.text.encode("ascii"))
            done = self._store.write([context_key(self._digest)], [(text,)])
            self._has_context = done == [Status.DONE]


def _value(digest: bytes, length: int) -> bytes:
    return (digest * -(-length // len(digest)))[:length]
