"""Tiers, keys and page arrays: the words every other file of the core uses.

Lives here: what has no behaviour beyond its own fields. Must not live here: anything that knows a
node, a pool or a request.

A *page* is `page_size` consecutive tokens, the unit of matching, allocation and transfer. Page
*numbers* index a pool on one tier; they travel as one-dimensional int64 arrays (`Pages`) that are
never written after they were made.
"""

from __future__ import annotations

import hashlib
from enum import IntEnum
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .errors import CallerError

BACKBONE = 0  # the component that every node has: full attention

Pages: TypeAlias = NDArray[np.int64]
RequestId: TypeAlias = int
MOST_PRIORITY = 1 << 31  # of a request, up or down
FlightId: TypeAlias = int


def frozen(pages: Pages) -> Pages:
    """The array itself, which nobody may write from now on."""
    pages.flags.writeable = False
    return pages


def kept(pages: Pages) -> Pages:
    """A read-only copy to keep: a view would keep the whole array behind it alive."""
    return frozen(pages.copy())


NO_PAGES: Pages = frozen(np.empty(0, dtype=np.int64))


class Tier(IntEnum):
    """Where a page's bytes are. Lower is faster."""

    DEVICE = 0
    HOST = 1
    STORAGE = 2


class PageState(IntEnum):
    """The five states of a page in a pool's ledger."""

    FREE = 0
    OWNED = 1  # a request fills it
    CACHED = 2  # a node holds it
    LENT = 3  # the target of a transfer in flight; nobody may read it yet
    RETIRING = 4  # given back while a transfer still reads or writes it; free when the loan ends


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
        whole = len(flat) // page_size * page_size
        return cls(flat[:whole].tobytes(), stride, namespace)

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
    """The digest that the first page of a namespace chains from."""
    return hashlib.sha256(b"hicache\0" + namespace.encode()).digest()


def chain_digests(parent: bytes, raw: bytes, stride: int) -> list[bytes]:
    """Digests of the pages in `raw`, each chained to the one before, the first to `parent`."""
    digests = []
    for start in range(0, len(raw), stride):
        parent = hashlib.sha256(parent + raw[start : start + stride]).digest()
        digests.append(parent)
    return digests
