"""What of a page is kept in storage: in which pools, under which keys, and by which rank.

Does not read or write a store, see `workers`, and does not make the text of a key, see
`hicache/storage/keys`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from hicache.core.actions import Piece
from hicache.storage.keys import Context, page_keys, shard


class PagePool(Protocol):
    """The host pages of one pool. `hicache/memory/pools` has it for pools with real bytes."""

    @property
    def name(self) -> str: ...

    @property
    def page_bytes(self) -> int: ...

    @property
    def shared(self) -> bool:
        """Whether every rank has the same bytes."""

    @property
    def in_place(self) -> bool:
        """Whether a store can use `buffers`."""

    @property
    def flat(self) -> memoryview:
        """All memory of the pool."""

    def buffers(self, page: int) -> tuple[memoryview, ...]:
        """The memory of a page."""

    def save(self, page: int, target: memoryview) -> None:
        """Copy a page's bytes to a buffer."""

    def load(self, page: int, source: memoryview) -> None:
        """Copy a page's bytes from a buffer."""


class Rank(NamedTuple):
    """One rank among those that share a cache: of tensor and of pipeline parallelism. own_store: it
    has a store to itself, such as a folder on its own disk, and writes there all that it reads."""

    rank: int = 0
    ranks: int = 1
    stage: int = 0
    stages: int = 1
    own_store: bool = False


class Place(NamedTuple):
    """One pool of a component. writes: whether this rank stores its pages."""

    pool: PagePool
    shard: str
    writes: bool


class Item(NamedTuple):
    """One page of a piece. keys: one for each of `pools`."""

    depth: int
    page: int
    keys: tuple[str, ...]
    pools: tuple[PagePool, ...]

    @property
    def bytes(self) -> int:
        return sum(pool.page_bytes for pool in self.pools)


class StoredPages:
    """The pages of one rank in storage."""

    def __init__(
        self, context: Context, pools: Mapping[str, Sequence[PagePool]], rank: Rank | None = None
    ) -> None:
        """context: what this cache shares pages with. pools: those that have bytes, by component in
        the order of the configuration."""
        place = rank or Rank()
        self.context = context.digest
        describes = place.own_store or place.rank == place.stage == 0
        self.document = context.text.encode("ascii") if describes else b""
        self._places = {
            component: tuple(
                Place(
                    pool,
                    shard(*place[:4], shared=pool.shared),
                    writes=place.own_store or not (pool.shared and place.rank),
                )
                for pool in found
            )
            for component, found in pools.items()
        }

    @property
    def components(self) -> tuple[str, ...]:
        return tuple(self._places)

    @property
    def largest_bytes(self) -> int:
        """Bytes of the largest page number, over its pools."""
        return max(
            (sum(place.pool.page_bytes for place in places) for places in self._places.values()),
            default=0,
        )

    @property
    def in_place(self) -> bool:
        """Whether a store can use the memory of every page."""
        return all(place.pool.in_place for places in self._places.values() for place in places)

    def keys(self, component: str, digests: Sequence[bytes]) -> list[list[str]]:
        """For each pool of the component, the keys of these pages."""
        return [
            page_keys(self.context, place.pool.name, place.shard, digests)
            for place in self._places[component]
        ]

    def items(self, piece: Piece, *, written: bool) -> Iterator[Item]:
        """The pages of a piece. written: only in the pools that this rank stores."""
        chosen = [place for place in self._places[piece.component] if place.writes or not written]
        pools = tuple(place.pool for place in chosen)
        columns = [
            page_keys(self.context, place.pool.name, place.shard, piece.digests) for place in chosen
        ]
        rows = zip(*columns, strict=True) if columns else ((),) * len(piece.digests)
        for offset, (page, keys) in enumerate(zip(piece.pages.tolist(), rows, strict=True)):
            yield Item(piece.first_page + offset, page, tuple(keys), pools)
