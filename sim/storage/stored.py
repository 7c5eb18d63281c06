"""A real store behind a simulated cache: what is written and read are small values on a real store.

A page of a simulation has no bytes of its own, so its value stands for it: the digest of the page,
repeated up to a length in proportion to the page's size. The keys are those of real pages, under a
context of their own: its revision names the workload, whose numbers of blocks mean nothing beside
it, and all of the model, so that no engine takes them for pages of its model. A component that has
several pools has a value for each.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from typing import Any

from hicache.core.errors import CallerError
from hicache.models import ModelDescription
from hicache.storage.base import Losses, Status, Storage
from hicache.storage.checksummed import HEADER_BYTES
from hicache.storage.keys import Context, context_key, document_of, page_keys, shard, take_apart

from .contents import Contents

REVISION = "simulated"  # begins the revision of every context of a simulation
UNIT_BYTES = 4096  # of the smallest value, with its header: a block of most disks
_MOST_UNITS = 16
_MOST_ENTRIES = 100_000  # that are looked through for the key of another simulation
_MOST_FIELDS = 4
_DIGITS = 32  # of a digest in a revision
_MOST_TEXT = 32


def context_of(
    model: ModelDescription, page_size: int, rows: str, workload: str, ranks: int
) -> Context:
    """The context under which a simulation of this model stores its pages. workload: a digest of
    everything that says what the number of a block stands for. ranks: that share a page."""
    definition = json.dumps(asdict(model), sort_keys=True)
    fields = {
        "workload": workload[:_DIGITS],
        "weights": model.weight_dtype.encode("ascii", "replace").decode()[:_MOST_TEXT],
        "ranks": ranks,
        "definition": hashlib.sha256(definition.encode()).hexdigest()[:_DIGITS],
    }
    revision = ";".join([REVISION, *(f"{name}={value}" for name, value in fields.items())])
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

    def check_key(self, name: str) -> None:
        """Raises CallerError if the store, called `name`, has pages of this workload and none under
        this key; the error names the fields that differ. Those of other workloads lie beside it."""
        if self._store.lookup([context_key(self._digest)])[0]:
            return
        ours = _fields(self._context.text.encode("ascii"), self._digest)
        for entry in islice(self._store.entries(""), _MOST_ENTRIES):
            key = take_apart(entry.key)
            if key is None or key.pool:
                continue
            buffer = bytearray(max(0, entry.size_bytes - HEADER_BYTES))
            read = self._store.read([entry.key], [(memoryview(buffer),)]) == [Status.DONE]
            theirs = _fields(bytes(buffer), key.context) if read else {}
            if theirs.get("workload") == ours["workload"]:
                names = [text for text in {*ours, *theirs} if ours.get(text) != theirs.get(text)]
                if len(names) > 1 and "definition" in names:
                    names.remove("definition")  # of the whole model, which the others say better
                names.sort(key=lambda name: (" of pool " in name, name))
                raise CallerError(
                    f"--storage: {name} has pages of this workload under another key (different: "
                    f"{', '.join(names[:_MOST_FIELDS])}); name another place, or give the options "
                    "of the earlier replay"
                )

    def lookup(self, component: str, digests: Sequence[bytes]) -> list[bool | None]:
        result: list[bool | None] = [True] * len(digests)
        for keys in self._keys(component, digests):
            result = [a and b for a, b in zip(result, self._store.lookup(keys), strict=True)]
        return result

    def read(self, component: str, digests: Sequence[bytes]) -> list[Status]:
        result = [Status.DONE] * len(digests)
        length = self._lengths[component]
        for keys in self._keys(component, digests):
            buffers = [bytearray(length) for _ in keys]
            statuses = self._store.read(keys, [(memoryview(buffer),) for buffer in buffers])
            for place, (digest, buffer) in enumerate(zip(digests, buffers, strict=True)):
                status = statuses[place]
                if status is Status.DONE and bytes(buffer) != _value(digest, length):
                    status = Status.CORRUPT
                if result[place] is Status.DONE:
                    result[place] = status
        return result

    def write(self, component: str, digests: Sequence[bytes]) -> list[Status]:
        statuses = [Status.DONE] * len(digests)
        self._write_context()
        values = [(memoryview(_value(digest, self._lengths[component])),) for digest in digests]
        for keys in self._keys(component, digests):
            for place, status in enumerate(self._store.write(keys, values)):
                if statuses[place] is Status.DONE:
                    statuses[place] = status
        return statuses

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


def _fields(text: bytes, digest: str) -> dict[str, Any]:
    """What a context has, with the fields of its revision and of its pools as its own."""
    fields = dict(document_of(text, digest) or {})
    kind, *parts = str(fields.pop("revision", "")).split(";")
    if kind == REVISION:
        fields |= dict(part.partition("=")[::2] for part in parts)
    for pool, inner in fields.pop("pools", {}).items():
        fields |= {f"{name} of pool {pool}": value for name, value in inner.items()}
    return fields


def _value(digest: bytes, length: int) -> bytes:
    return (digest * -(-length // len(digest)))[:length]
