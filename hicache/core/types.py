"""Tiers, keys and page arrays: the basic types that every other file of the core uses.

A *page* is `page_size` consecutive tokens, the unit of matching, allocation and transfer. Page
*numbers* index a pool on one tier. They are passed as one-dimensional int64 arrays (`Pages`) that
are read-only after they are created.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from enum import IntEnum
from typing import Any, Final, NamedTuple, Self, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import astuple, replace
from numpy.typing import ArrayLike, NDArray

from .errors import CallerError

BACKBONE: Final = 0  # index of the component that every node has: full attention

Pages: TypeAlias = NDArray[np.int64]
Rows: TypeAlias = bytes | memoryview  # of a key; many of them are a view of a longer key
MANY_ROWS = 4096  # bytes
RequestId: TypeAlias = int
MOST_PRIORITY = 1 << 31  # largest absolute value of a request's priority
TransferId: TypeAlias = int
PinId: TypeAlias = int


def frozen(pages: Pages) -> Pages:
    """Make the array read-only and return it."""
    pages.setflags(False)  # type: ignore[call-arg]  # by position, it takes half the time
    return pages


def kept(pages: Pages) -> Pages:
    """A read-only copy. A view would keep the whole underlying array in memory."""
    return frozen(pages.copy())


def kept_rows(rows: Rows, start: int, stop: int) -> Rows:
    """The rows from byte `start` to `stop`. Many are not copied, unless the view would keep more
    than twice as much in memory."""
    count = stop - start
    full: Any = rows if isinstance(rows, bytes) else rows.obj
    if count < MANY_ROWS or 2 * count < len(full):
        return bytes(rows[start:stop])
    return memoryview(rows)[start:stop]


NO_PAGES: Pages = frozen(np.empty(0, dtype=np.int64))


class Tier(IntEnum):
    """Where a page's bytes are. Lower is faster."""

    DEVICE = 0
    HOST = 1
    STORAGE = 2


DEVICE: Final = 0  # `Tier.DEVICE` as a plain number: a member takes five times as long to look up
HOST: Final = 1
TIERS: tuple[Tier, ...] = tuple(Tier)


class PageState(IntEnum):
    """The five states of a page in a pool's ledger."""

    FREE = 0
    OWNED = 1  # a request has it and fills it
    CACHED = 2  # a node has it
    RESERVED = 3  # a transfer in flight writes it; only the pass that waits for it may read it
    RETIRING = 4  # given back while on loan; it becomes free when its last loan ends


class Record(Struct, frozen=True, gc=False):
    """An event or an outcome: values that never change, by name and, as in a NamedTuple, in order.
    It is made in half the time of one, and the garbage collector passes it by."""

    @property
    def _fields(self) -> tuple[str, ...]:
        return self.__struct_fields__

    def __iter__(self) -> Iterator[Any]:
        return iter(astuple(self))

    def __getitem__(self, at: Any) -> Any:
        return astuple(self)[at]

    def _replace(self, **values: Any) -> Self:
        return replace(self, **values)


class Key(NamedTuple):
    """A page-aligned prefix: one fixed-width row of bytes per page, and a namespace.

    `raw` holds `len(raw) // stride` rows of `stride` bytes. Two prefixes share page i if and only
    if their namespaces are equal and rows 0..i are equal, so the core compares bytes and never
    needs to know whether a row came from token ids, token pairs (bigram) or chained block ids.
    """

    raw: bytes
    stride: int
    namespace: str = ""

    @property
    def pages(self) -> int:
        return len(self.raw) // self.stride

    @classmethod
    def from_tokens(
        cls, tokens: ArrayLike, page_size: int, namespace: str = "", bigram: bool = False
    ) -> Key:
        """The key of a token sequence, cut down to whole pages.

        tokens: int64[n]. With `bigram`, position i is the pair (i, i+1) (EAGLE drafts), so n tokens
        span n - 1 positions. Raises CallerError for a page size below 1 or a 2-d input.
        """
        if page_size < 1:
            raise CallerError(f"page_size: expected at least 1, found {page_size}")
        flat = np.ascontiguousarray(tokens, dtype="<i8")
        if flat.ndim != 1:
            raise CallerError(f"tokens: expected one dimension, found {flat.ndim}")
        if bigram:
            flat = np.stack((flat[:-1], flat[1:]), axis=1) if len(flat) > 1 else flat[:0, None]
        stride = page_size * 8 * (2 if bigram else 1)
        number = len(flat) // page_size * page_size
        return cls(flat[:number].tobytes(), stride, namespace)

    @classmethod
    def from_page_ids(cls, ids: ArrayLike, namespace: str = "") -> Key:
        """The key of a sequence of page identities (int64, one per page; chained or not)."""
        return cls(np.ascontiguousarray(ids, dtype="<i8").tobytes(), 8, namespace)

    def first(self, pages: int) -> Key:
        """The leading `pages` pages (fewer if the key is shorter)."""
        return Key(self.raw[: pages * self.stride], self.stride, self.namespace)

    def page_digests(self) -> list[bytes]:
        """SHA-256 chain over (parent digest, the page's row), rooted in the namespace."""
        return chain_digests(root_digest(self.namespace), self.raw, self.stride)


def root_digest(namespace: str) -> bytes:
    """The parent digest of the first page of every prompt in this namespace."""
    return hashlib.sha256(b"hicache\0" + namespace.encode()).digest()


def chain_digests(parent: bytes, raw: Rows, stride: int) -> list[bytes]:
    """SHA-256 digests of the pages in `raw`. Each covers the digest before it; the first covers
    `parent`. stride: bytes per page."""
    digests = []
    for start in range(0, len(raw), stride):
        parent = hashlib.sha256(parent + raw[start : start + stride]).digest()
        digests.append(parent)
    return digests
